"""Lower-precision arithmetic, as an explicit choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from maskov.errors import InputError
from maskov.models.base import MaskedModel

# The precisions of masked passes. Energies are always summed in float64.
PRECISIONS = ("float32", "tf32", "bfloat16", "float64")


def weights_of(precision: str) -> torch.dtype:
    """Return the dtype in which a model of this precision is loaded."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision '{precision}'; use one of {', '.join(PRECISIONS)}.")
    return torch.float64 if precision == "float64" else torch.float32


def in_precision(model: MaskedModel, precision: str) -> MaskedModel:
    """Return the model with its passes in this precision."""
    if precision in ("float32", "float64"):
        return model
    if precision == "tf32" and model.device.type != "cuda":
        raise InputError("tf32 needs an NVIDIA GPU; use float32, or --device cuda.")
    if precision == "tf32":
        return model.in_precision(torch.float32, coarse_products=True)
    return model.in_precision(getattr(torch, precision))


@contextmanager
def coarse(allowed: bool) -> Iterator[None]:
    """Allow float32 matrix products to round their factors (TF32), if `allowed`."""
    if not allowed:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
