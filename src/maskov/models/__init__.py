"""Masked models: the distribution of each masked token given the rest."""

from __future__ import annotations

from pathlib import Path

import torch

from maskov.errors import InputError
from maskov.models.base import PRECISIONS, MaskedModel, Queries, adapted, weights_of
from maskov.models.builtin import TabularModel, counterexample, load_antibody, untrained
from maskov.models.checkpoint import LOADING, translation_folder
from maskov.models.conditional import ConditionalModel
from maskov.models.huggingface import HuggingFaceModel
from maskov.models.packed import check_smoothing
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
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError("unsupported device type")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device '{name}' is not available; try --device cpu.") from error
    return device


def device_name(device: torch.device) -> str:
    """Return the device's name as records show it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def load(
    name: str | Path = DEFAULT_MODEL,
    device: torch.device | str = "auto",
    precision: str = "float32",
    tokenizer: str | Path | None = None,
    trust_remote_code: bool = False,
    allow_download: bool = True,
    prefix: str = "",
    remove_smoothing: float = 0.0,
    extra_letters: str = "",
) -> MaskedModel:
    """Load a masked model by its maskov name, folder or hub name; a Path is always a folder.

    `precision` is float32, float64, or a lower one: tf32 (NVIDIA GPUs) or bfloat16. Without
    `allow_download` the hub is not asked: a hub name must be in its cache already. Threads that
    load at the same time do so one after the other. `prefix` is a text that the model reads before
    every sequence, such as a label that it was trained with. `remove_smoothing` is the label
    smoothing of its training, such as 0.1, which is then removed from its conditionals. A model of
    proteins proposes the 20 amino acids, and of its other letters the `extra_letters`.
    """
    check_smoothing(remove_smoothing)
    name = str(name.resolve()) if isinstance(name, Path) else name
    device = choose_device(device) if isinstance(device, str) else device
    dtype = weights_of(precision)
    with LOADING:
        folder = None if name in _NAMED else translation_folder(name, allow_download)
        if tokenizer is not None and (name in _NAMED or folder is not None):
            raise InputError(f"'{name}' has its own tokens: drop the tokenizer.")
        model: MaskedModel
        if name == "counterexample":
            model = counterexample()
        elif name == "untrained":
            model = untrained(device, dtype)
        elif name in PACKAGES:
            model = load_antibody(name, device, dtype)
        elif folder is not None:
            model = ConditionalModel.load(folder, device, dtype, name)
        else:
            model = HuggingFaceModel.load(
                source_of(name, "masked"),
                device,
                dtype,
                None if tokenizer is None else str(tokenizer),
                trust_remote_code,
                called=name,
                allow_download=allow_download,
            )
    return adapted(model, prefix, extra_letters, remove_smoothing, precision)
