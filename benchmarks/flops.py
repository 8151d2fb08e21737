"""Floating-point operations of the matrix products of one masked pass.

A product of n × k and k × m takes 2·n·k·m. With L tokens (special ones included), width H,
feed-forward width I and vocabulary V, a layer takes

    projections to queries, keys, values and out   2·L·4H²
    attention scores and their use                 2·L·2LH
    feed-forward                                   2·L·2HI, or 2·L·3HI where it is gated

and the head 2·H² + 2·H·V at each position where it runs. If the last layer runs at the masked
position only, other positions need only its keys and values. Only executed products are counted;
padding is not. `measure_ceiling` times plain products of the same shapes.
"""

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.tools import now
from maskov.models import HuggingFaceModel


def _sizes(config: Any) -> tuple[int, int, int, int, int] | None:
    """Return layers, width, feed-forward width and products, vocabulary; None if not known."""
    family = getattr(config, "model_type", "")
    if family not in ("bert", "roberta", "xlm-roberta", "camembert", "esm", "modernbert"):
        return None
    sizes = (config.num_hidden_layers, config.hidden_size, config.intermediate_size)
    return (*sizes, 3 if family == "modernbert" else 2, config.vocab_size)


def flops_per_pass(
    config: Any, length: int, frame: int = 2, query_only: bool = False, head: str = "everywhere"
) -> int | None:
    """Count one masked pass of `length` content tokens and `frame` special tokens.

    With `query_only` the last layer runs at the masked position only. `head` says where the head
    runs: `everywhere`, as in plain Hugging Face code; at the `masked` position; or there without
    the projection (`transform`), if one token's score is enough.
    """
    sizes = _sizes(config)
    if sizes is None:
        return None
    layers, width, inner, forward, vocabulary = sizes
    tokens = length + frame
    queries = (layers - 1) * tokens + (1 if query_only else tokens)
    body = 4 * width**2 * (layers * tokens + queries)
    body += 2 * queries * (2 * tokens * width + forward * width * inner)
    transform, whole = 2 * width**2, 2 * width**2 + 2 * width * vocabulary
    heads = {"everywhere": tokens * whole, "masked": whole, "transform": transform}
    return body + heads[head]


def sampling_flops(
    model: HuggingFaceModel, lengths: list[int], passes: list[int], steps: list[int], energy: str
) -> int | None:
    """Count what maskov executes: the passes of each chain, and one proposal per step."""
    config, total = model.network.config, 0
    at_mask, head = model.head is not None, "masked" if energy == "norm" else "transform"
    for length, made, done in zip(lengths, passes, steps, strict=True):
        options = (model.encoder is not None, head) if at_mask else ()
        each = flops_per_pass(config, length, model.frame.size, *options)
        if each is None:
            return None
        total += made * each + (done * 2 * config.hidden_size * config.vocab_size if at_mask else 0)
    return total


def measure_ceiling(model: HuggingFaceModel, seconds: float = 1.0) -> float | None:
    """Return the TFLOP/s of one layer's products in the model's dtype, in the fastest batches."""
    sizes = _sizes(model.network.config)
    if sizes is None:
        return None
    _, width, inner, forward, _ = sizes
    products = [(width, 3 * width), (width, width), (width, (forward - 1) * inner), (inner, width)]
    # GPUs gain nothing from more tokens per product; CPU caches prefer fewer.
    batches = (2**15, 2**17) if model.device.type == "cuda" else (2**8, 2**10, 2**12)
    return max(_teraflops(model, products, tokens, seconds) for tokens in batches)


def _teraflops(
    model: HuggingFaceModel, products: list[tuple[int, int]], tokens: int, seconds: float
) -> float:
    # Constants use less power and overstate the speed.
    noise = {"generator": torch.Generator(model.device).manual_seed(0), "device": model.device}
    pairs = [
        [torch.randn(rows, into, **noise).to(model.dtype) for rows in (tokens, out)]  # type: ignore
        for into, out in products
    ]
    flops = sum(2 * tokens * into * out for into, out in products)
    times: list[float] = []
    begin = now(model.device)
    # The first round warms up; use the fastest of the others.
    while len(times) < 3 or now(model.device) - begin < seconds:
        start = now(model.device)
        for inputs, weight in pairs:
            F.linear(inputs, weight)
        times.append(now(model.device) - start)
    return flops / min(times[1:]) / 1e12
