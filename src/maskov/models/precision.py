"""Lower-precision arithmetic, as an explicit choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock, local

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


class _Products:
    """Who computes products now: torch has one flag for all threads of a process.

    Coarse and exact passes of different threads take turns; those of one kind run at once.
    """

    def __init__(self) -> None:
        # Whoever waits for the others to end holds the queue, so that nobody else begins.
        self._queue, self._ended = Lock(), Condition()
        self._users, self._coarse, self._before = 0, False, ""
        self._mine = local()

    def enter(self, coarse: bool) -> None:
        depth = getattr(self._mine, "depth", 0)
        if not depth:
            with self._queue, self._ended:
                self._ended.wait_for(lambda: not self._users or self._coarse == coarse)
                if coarse and not self._users:
                    self._before = torch.get_float32_matmul_precision()
                    torch.set_float32_matmul_precision("high")
                self._users, self._coarse = self._users + 1, coarse
        self._mine.depth = depth + 1

    def leave(self) -> None:
        self._mine.depth -= 1
        if self._mine.depth:
            return
        with self._ended:
            self._users -= 1
            if not self._users:
                if self._coarse:
                    torch.set_float32_matmul_precision(self._before)
                self._ended.notify_all()


_PRODUCTS = _Products()


@contextmanager
def coarse(allowed: bool) -> Iterator[None]:
    """Allow float32 matrix products to round their factors (TF32), if `allowed`."""
    _PRODUCTS.enter(allowed)
    try:
        yield
    finally:
        _PRODUCTS.leave()
