"""Which implementation of the encoder's operations serves a tensor."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType

import torch

from maskov.encoders import torch_operations
from maskov.types import Tensor

_FUSED = frozenset({torch.bfloat16, torch.float16, torch.float32})


def operations(weight: Tensor) -> ModuleType:
    """Return `fused` where there are a GPU, Triton and a dtype for it, else `torch_operations`.

    Both modules hold functions of the same names and meanings.
    """
    fused = _fused() if weight.is_cuda and weight.dtype in _FUSED else None
    return torch_operations if fused is None else fused


@lru_cache(maxsize=1)
def _fused() -> ModuleType | None:
    try:
        return import_module("maskov.encoders.fused")
    except ImportError:  # Triton is no dependency: it comes with torch, but not everywhere
        return None
