"""The ceiling: the speed of matrix products of the model's own shapes on this machine."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F

from maskov.benchmarks.flops import NetworkSize
from maskov.models import HuggingFaceModel

# Tokens per product: GPUs gain nothing from more; CPU caches prefer fewer.
_TOKENS = {"cuda": (2**15, 2**17)}
_CPU_TOKENS = (2**8, 2**10, 2**12)
_MAX_SECONDS = 1.0


def measure_ceiling(model: HuggingFaceModel, seconds: float) -> dict[str, Any]:
    """Time the products of one layer in the model's dtype; return the fastest batch size."""
    size = NetworkSize.of(model.network.config)
    if size is None:
        return {"teraflops": None, "tokens": None}
    sizes = _TOKENS.get(model.device.type, _CPU_TOKENS)
    reached = {tokens: _teraflops(model, size, tokens, seconds) for tokens in sizes}
    best = max(sizes, key=reached.__getitem__)
    return {"teraflops": reached[best], "tokens": best}


def _teraflops(model: HuggingFaceModel, size: NetworkSize, tokens: int, seconds: float) -> float:
    generator = torch.Generator(model.device).manual_seed(0)

    def random(*dimensions: int) -> torch.Tensor:
        numbers = torch.randn(*dimensions, generator=generator, device=model.device)
        return numbers.to(model.dtype)

    weights = [random(out, into) for into, out in size.products]
    inputs = {into: random(tokens, into) for into, _ in size.products}
    flops = sum(2 * tokens * into * out for into, out in size.products)
    times: list[float] = []
    begin = time.perf_counter()
    # The first round warms up; use the fastest of the others.
    while len(times) < 3 or time.perf_counter() - begin < min(seconds, _MAX_SECONDS):
        start = _now(model.device)
        for weight in weights:
            F.linear(inputs[weight.shape[1]], weight)
        times.append(_now(model.device) - start)
    return flops / min(times[1:]) / 1e12


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
