"""Choose the implementation of the encoder's operations."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType

import torch

from maskov.encoders import torch_operations
from maskov.types import Tensor

_FUSED = frozenset({torch.bfloat16, torch.float16, torch.float32})


def operations(weight: Tensor) -> ModuleType:
    """Return `fused` if GPU, Triton and dtype allow it, else `torch_operations`.

    Both modules have the same functions.
    """
    fused = _fused() if weight.is_cuda and weight.dtype in _FUSED else None
    return torch_operations if fused is None else fused


@lru_cache(maxsize=1)
def _fused() -> ModuleType | None:
    try:
        return import_module("maskov.encoders.fused")
    except ImportError:  # Triton comes with torch, but not on every platform
        return None
