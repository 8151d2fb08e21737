"""Masked models: the distribution of each masked token given the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maskov.config import ModelSource
from maskov.errors import LOG, InputError, refuse, refusing
from maskov.models.base import PRECISIONS, MaskedModel, Queries, adapted, weights_of
from maskov.models.builtin import TabularModel, counterexample, load_antibody, untrained
from maskov.models.checkpoint import LOADING, translation_folder
from maskov.models.conditional import ConditionalModel
from maskov.models.huggingface import HuggingFaceModel
from maskov.models.network import load_translation
from maskov.shipped import PACKAGES, default_judge, default_model, source_of

# The untrained stand-in if no model is shipped; None if no judge is.
DEFAULT_MODEL = default_model()
DEFAULT_JUDGE = default_judge()

# The masked models that are not folders.
_NAMED = frozenset({"untrained", "counterexample", *PACKAGES})

__all__ = [
    "DEFAULT_JUDGE",
    "DEFAULT_MODEL",
    "PRECISIONS",
    "HuggingFaceModel",
    "MaskedModel",
    "Queries",
    "TabularModel",
    "choose_device",
    "counterexample",
    "device_name",
    "load",
    "untrained",
]


def choose_device(name: str = "auto") -> torch.device:
    """Turn `auto`, `cpu`, `cuda`, `cuda:1` or `mps` into an available device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    missing = f"the device '{name}' is not available; try --device cpu."
    with refusing(missing, RuntimeError, AssertionError):
        device = torch.device(name)
        refuse((device.type not in ("cpu", "cuda", "mps", "xpu"), missing))
        torch.empty(0, device=device)
    return device


def device_name(device: torch.device) -> str:
    """Return the device's name as records show it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def load(
    name: str | Path | torch.nn.Module = DEFAULT_MODEL,
    device: torch.device | str = "auto",
    precision: str = "float32",
    tokenizer: Any = None,
    trust_remote_code: bool = False,
    allow_download: bool = True,
    prefix: str = "",
    remove_smoothing: float = 0.0,
    extra_letters: str = "",
    architecture: str = "masked-lm",
    shift_logits: bool = False,
    mask_token_id: int | None = None,
) -> MaskedModel:
    """Load a masked model by its maskov name, folder or hub name; a Path is always a folder.

    A network in memory is given with its `tokenizer`: one of transformers, or where to find it.
    The network stays as it is, and on its device unless another one is given. Load it again after
    its weights have changed.

    `precision` is float32, float64, or a lower one: tf32 (NVIDIA GPUs) or bfloat16. Without
    `allow_download` the hub is not asked: a hub name must be in its cache already. Threads that
    load at the same time do so one after the other. `prefix` is a text that the model reads before
    every sequence, such as a label that it was trained with. `remove_smoothing` is the label
    smoothing of its training, such as 0.1, which is then removed from its conditionals. A model of
    proteins proposes the 20 amino acids, and of its other letters the `extra_letters`.

    The `architecture` masked-diffusion is any class with code of its own that returns logits. With
    `shift_logits` those at a position are the logits of the next one. `mask_token_id` is the mask,
    if neither the tokenizer nor the config says it.
    """
    network = name if isinstance(name, torch.nn.Module) else None
    if network is not None:
        called = getattr(getattr(network, "config", None), "_name_or_path", "")
        name = called or type(network).__name__
    if not isinstance(name, str | Path):
        raise InputError(
            f"load takes a name, a folder or a network of torch, not {type(name).__name__}."
        )
    name = str(name.resolve()) if isinstance(name, Path) else name
    words = str(tokenizer) if isinstance(tokenizer, str | Path) else None
    source = ModelSource(
        name, words, trust_remote_code, prefix, remove_smoothing, extra_letters,
        architecture, shift_logits, mask_token_id,  # type: ignore[arg-type]
    )  # fmt: skip
    dtype = weights_of(precision)
    where = choose_device(device) if isinstance(device, str) else device
    with LOADING:
        if network is None:
            model = _by_name(source, where, dtype, words or tokenizer, allow_download)
        else:
            stays = None if device == "auto" else where
            model = HuggingFaceModel.in_memory(network, words or tokenizer, source, stays, dtype)
    model = adapted(model, source, precision)
    LOG.info("loaded %r", model)
    return model


def _by_name(
    source: ModelSource,
    device: torch.device,
    dtype: torch.dtype,
    tokenizer: Any,
    allow_download: bool,
) -> MaskedModel:
    """Load a model that is built in, a folder or on the hub."""
    name = source.name
    folder = None if name in _NAMED else translation_folder(name, allow_download)
    kept = replace(source, prefix="", remove_smoothing=0.0, extra_letters="")
    plain = kept == ModelSource(name, None, source.trust_remote_code) and tokenizer is None
    refuse(
        (
            (name in _NAMED or folder is not None) and not plain,
            f"'{name}' has its own tokens and network: drop the tokenizer, the architecture, "
            "shift_logits and mask_token_id.",
        )
    )
    if name == "counterexample":
        return counterexample()
    if name == "untrained":
        return untrained(device, dtype)
    if name in PACKAGES:
        return load_antibody(name, device, dtype)
    if folder is not None:
        return ConditionalModel(*load_translation(folder, device, dtype), source)
    return HuggingFaceModel.load(
        source_of(name, "masked"), source, device, dtype, tokenizer, allow_download
    )
