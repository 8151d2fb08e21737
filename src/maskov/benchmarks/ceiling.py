"""The ceiling: how fast this machine multiplies matrices of the model's own shapes."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F

from maskov.benchmarks.flops import Shape
from maskov.models import HuggingFaceModel

# Tokens in one product: more would be no faster on a GPU, and fewer fit a CPU's caches better.
_TOKENS = {"cuda": (2**15, 2**17)}
_TOKENS_ELSEWHERE = (2**8, 2**10, 2**12)
_LONGEST = 1.0


def measure_ceiling(model: HuggingFaceModel, seconds: float) -> dict[str, Any]:
    """Time one layer's products with its weights, in the model's type; the fastest size counts."""
    shape = Shape.of(model.network.config)
    if shape is None:
        return {"teraflops": None, "tokens": None}
    sizes = _TOKENS.get(model.device.type, _TOKENS_ELSEWHERE)
    reached = {tokens: _teraflops(model, shape, tokens, seconds) for tokens in sizes}
    best = max(sizes, key=reached.__getitem__)
    return {"teraflops": reached[best], "tokens": best}


def _teraflops(model: HuggingFaceModel, shape: Shape, tokens: int, seconds: float) -> float:
    generator = torch.Generator(model.device).manual_seed(0)

    def random(*size: int) -> torch.Tensor:
        numbers = torch.randn(*size, generator=generator, device=model.device)
        return numbers.to(model.dtype)

    weights = [random(out, into) for into, out in shape.products]
    inputs = {into: random(tokens, into) for into, _ in shape.products}
    flops = sum(2 * tokens * into * out for into, out in shape.products)
    taken: list[float] = []
    begun = time.perf_counter()
    # The first round warms up; the fastest of the others counts.
    while len(taken) < 3 or time.perf_counter() - begun < min(seconds, _LONGEST):
        start = _now(model.device)
        for weight in weights:
            F.linear(inputs[weight.shape[1]], weight)
        taken.append(_now(model.device) - start)
    return flops / min(taken[1:]) / 1e12


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
