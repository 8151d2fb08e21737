"""Translation models as folders: config.json, model.safetensors and a tokenizer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors.torch import load_file, save_file

from maskov.errors import ModelError
from maskov.models.conditional.network import Network, Shape
from maskov.models.hf_logging import quiet
from maskov.types import Tensor

ARCHITECTURE = "maskov-translation"


def save(folder: Path, network: Network, tokenizer: Any, dtype: torch.dtype) -> None:
    """Write a network and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(dtype).contiguous() for name, value in network.state_dict().items()}
    save_file({name: value.cpu() for name, value in weights.items()}, folder / "model.safetensors")
    config = {"architecture": ARCHITECTURE, **asdict(network.shape)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)


def is_translation(folder: Path) -> bool:
    """Whether a folder holds such a model, as far as its config says."""
    return _config(folder).get("architecture") == ARCHITECTURE


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> tuple[Network, Any]:
    """Read a network and its tokenizer, or say what is wrong with the folder."""
    config = _config(folder)
    if config.pop("architecture", None) != ARCHITECTURE:
        raise ModelError(f"'{folder}' is no translation model: its config.json does not say so.")
    # On the meta device nothing is drawn or filled; every weight is put in its place.
    with torch.device("meta"):
        network = Network(_shape(config, folder))
    try:
        weights = load_file(folder / "model.safetensors")
    except Exception as error:  # safetensors has an exception class of its own
        raise ModelError(
            f"the translation model '{folder}' is damaged: its model.safetensors is missing or "
            "cannot be read."
        ) from error
    wanted, found = _sizes(network.state_dict()), _sizes(weights)
    differ = [name for name in wanted.keys() | found if wanted.get(name) != found.get(name)]
    if differ:
        raise ModelError(
            f"the translation model '{folder}' is damaged: its weights do not fit its config.json, "
            f"such as {min(differ)}."
        )
    placed = {name: value.to(device, dtype, copy=True) for name, value in weights.items()}
    network.load_state_dict(placed, assign=True)
    tokenizer = load_tokenizer(folder)
    if max(tokenizer.get_vocab().values(), default=0) >= network.shape.vocabulary:
        raise ModelError(f"the tokenizer of '{folder}' has tokens that its network has not.")
    return network.eval().requires_grad_(False), tokenizer


def load_tokenizer(folder: Path) -> Any:
    """Read the tokenizer of a translation model."""
    from transformers import PreTrainedTokenizerFast

    try:
        with quiet():
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    except Exception as error:  # a damaged file fails in a dozen ways
        raise ModelError(f"'{folder}' has no tokenizer that can be read.") from error
    for mark in ("pad", "bos", "eos", "unk", "mask"):
        if getattr(tokenizer, f"{mark}_token_id") is None:
            raise ModelError(f"the tokenizer of '{folder}' lacks its {mark} token.")
    return tokenizer


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shape(config: dict[str, Any], folder: Path) -> Shape:
    """Refuse sizes that no network has, before memory is asked for."""
    kinds = get_type_hints(Shape)
    try:
        shape = Shape(**{name: config[name] for name in kinds if name in config})
    except TypeError:  # one that has no default is not there
        raise _misshapen(folder) from None
    values = asdict(shape)
    if not all(type(value) is kinds[name] for name, value in values.items()):
        raise _misshapen(folder)
    sizes = [value for value in values.values() if type(value) is int]
    layers = max(shape.encoder_layers, shape.decoder_layers)
    if not all(0 < size <= 2**20 for size in sizes) or layers > 2**10:
        raise _misshapen(folder)
    if shape.width % shape.heads or not 0 < shape.norm_epsilon < 1:
        raise _misshapen(folder)
    return shape


def _misshapen(folder: Path) -> ModelError:
    return ModelError(
        f"the translation model '{folder}' is damaged: the sizes in its config.json fit no network."
    )


def _sizes(weights: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in weights.items()}
