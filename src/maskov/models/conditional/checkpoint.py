"""Translation models as folders: config.json, model.safetensors and a tokenizer.

The tokenizer is a Hugging Face one; with `bpe_merges.txt` its words are split by these merges
first (`maskov.models.conditional.bpe`).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors.torch import load_file, save_file

from maskov.errors import ModelError
from maskov.models.checkpoint import check_files
from maskov.models.conditional import bpe
from maskov.models.conditional.network import TranslationNetwork, TranslationShape
from maskov.models.hf_logging import silence_transformers
from maskov.shipped import folder_of
from maskov.types import Tensor

ARCHITECTURE = "maskov-translation"
# What a model needs of a repository on the hub; no code and no pickles.
_FILES = ["*.json", "*.safetensors", "*.txt"]


def save(folder: Path, network: TranslationNetwork, tokenizer: Any, dtype: torch.dtype) -> None:
    """Write a network and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(dtype).contiguous() for name, value in network.state_dict().items()}
    save_file({name: value.cpu() for name, value in weights.items()}, folder / "model.safetensors")
    config = {"architecture": ARCHITECTURE, **asdict(network.shape)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)


def is_translation(folder: Path) -> bool:
    """Whether a folder's config.json says that it is such a model."""
    return _config(folder).get("architecture") == ARCHITECTURE


def translation_folder(name: str, download: bool = False) -> Path | None:
    """Return the folder of the translation model of this name, or None.

    It is a shipped model, a folder, or a hub name: in the hub's cache or, with `download`, brought
    there. Energies are parsed without, so that reading one opens no connection.
    """
    folder = folder_of(name) or Path(name)
    if name.count("/") == 1 and not os.path.exists(folder):
        folder = _from_hub(name, download) or folder
    return folder if is_translation(folder) else None


def _from_hub(name: str, download: bool) -> Path | None:
    import huggingface_hub as hub

    try:
        find = hub.hf_hub_download if download else hub.try_to_load_from_cache
        config = find(name, "config.json")
    except Exception:  # many kinds; loading says that there is no such model
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    if not download or not is_translation(folder):
        return folder
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"the translation model '{name}' could not be downloaded: {reason}."
        ) from error


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> tuple[TranslationNetwork, Any]:
    """Read a network and its tokenizer."""
    config = _config(folder)
    if config.pop("architecture", None) != ARCHITECTURE:
        raise ModelError(f"'{folder}' is not a translation model, by its config.json.")
    check_files(folder)
    # The meta device allocates and draws nothing; every weight is assigned below.
    with torch.device("meta"):
        network = TranslationNetwork(_shape(config, folder))
    try:
        weights = load_file(folder / "model.safetensors")
    except Exception as error:  # safetensors has its own exception class
        raise ModelError(
            f"the translation model '{folder}' is damaged: its model.safetensors is missing or "
            "cannot be read."
        ) from error
    expected, actual = _sizes(network.state_dict()), _sizes(weights)
    differ = [name for name in expected.keys() | actual if expected.get(name) != actual.get(name)]
    if differ:
        raise ModelError(
            f"the translation model '{folder}' is damaged: its weights do not fit its config.json "
            f"({min(differ)})."
        )
    copies = {name: value.to(device, dtype, copy=True) for name, value in weights.items()}
    network.load_state_dict(copies, assign=True)
    tokenizer = load_tokenizer(folder)
    if max(tokenizer.get_vocab().values(), default=0) >= network.shape.vocabulary:
        raise ModelError(f"the tokenizer of '{folder}' has more tokens than its network.")
    return network.eval().requires_grad_(False), tokenizer


def load_tokenizer(folder: Path) -> Any:
    """Read the tokenizer of a translation model."""
    from transformers import PreTrainedTokenizerFast

    try:
        with silence_transformers():
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    except Exception as error:  # damaged files raise many kinds of errors
        raise ModelError(f"'{folder}' has no readable tokenizer.") from error
    for name in ("pad", "bos", "eos", "unk", "mask"):
        if getattr(tokenizer, f"{name}_token_id") is None:
            raise ModelError(f"the tokenizer of '{folder}' lacks its {name} token.")
    merges = Path(folder) / bpe.FILE
    return (
        bpe.BytePairTokenizer(tokenizer, bpe.Merges.read(merges)) if merges.exists() else tokenizer
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _shape(config: dict[str, Any], folder: Path) -> TranslationShape:
    """Refuse impossible sizes before anything is allocated."""
    kinds = get_type_hints(TranslationShape)
    try:
        shape = TranslationShape(**{name: config[name] for name in kinds if name in config})
    except TypeError:  # a required size is missing
        raise _invalid_sizes(folder) from None
    values = asdict(shape)
    if not all(type(value) is kinds[name] for name, value in values.items()):
        raise _invalid_sizes(folder)
    sizes = [value for value in values.values() if type(value) is int]
    layers = max(shape.encoder_layers, shape.decoder_layers)
    if not all(0 < size <= 2**20 for size in sizes) or layers > 2**10:
        raise _invalid_sizes(folder)
    if shape.width % shape.heads or not 0 < shape.norm_epsilon < 1:
        raise _invalid_sizes(folder)
    return shape


def _invalid_sizes(folder: Path) -> ModelError:
    return ModelError(
        f"the translation model '{folder}' is damaged: invalid sizes in its config.json."
    )


def _sizes(weights: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in weights.items()}
