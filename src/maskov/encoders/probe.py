"""Compare an encoder with the network that it was read from, on a short input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from maskov.encoders.blocks import EncoderNetwork
from maskov.encoders.layout import Packed, TokenLayout, Uniform
from maskov.types import Float, Int, Tensor

# Tolerated difference, relative to the largest value, by dtype.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
}
# Wider windows are not tested: the probe would take too long.
_LONGEST = 300

Forward = Callable[
    [Int[Tensor, " tokens"], Int[Tensor, " tokens"], TokenLayout, Int[Tensor, " passes"]],
    Float[Tensor, "passes hidden"],
]


def agrees(encoder: Any, network: Any) -> bool:
    """Compare at every token of two sequences of different lengths, in both layouts."""
    lengths = _lengths(encoder.network)
    ids = [_tokens(length, network) for length in lengths]
    try:
        with torch.no_grad(), _exact_products():
            theirs = torch.cat([network.base_model(input_ids=row[None])[0][0] for row in ids])
            ours = [_packed(encoder, ids), torch.cat([_uniform(encoder, row) for row in ids])]
    except (AttributeError, TypeError, ValueError, IndexError, RuntimeError):
        return False
    limit = _TOLERANCE.get(theirs.dtype, 1e-3) * theirs.abs().max()
    return all(
        own.shape == theirs.shape and bool((own - theirs).abs().max() <= limit) for own in ours
    )


def _lengths(network: EncoderNetwork) -> list[int]:
    """Choose two lengths, one longer than every narrow window so that a wrong window shows."""
    windows = [block.window for block in network.blocks if block.window is not None]
    longer = max([9, *(window + 4 for window in windows if window < _LONGEST)])
    return [min(5, network.limit), min(longer, network.limit)]


def _tokens(length: int, network: Any) -> Int[Tensor, " length"]:
    """Return some tokens other than padding, which some families treat specially."""
    config = network.config
    size, pad = int(config.vocab_size), getattr(config, "pad_token_id", None)
    usable = [token for token in range(min(size, 2 * length + 2)) if token != pad]
    ids = [usable[3 * place % len(usable)] for place in range(length)]
    return torch.tensor(ids, device=network.device)


def _packed(encoder: Forward, ids: list[Tensor]) -> Float[Tensor, "tokens hidden"]:
    """Run each sequence once for each of its tokens, concatenated."""
    copies = [row for row in ids for _ in row]
    lengths = torch.tensor([len(row) for row in copies], device=ids[0].device)
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    places = torch.cat([torch.arange(len(row), device=row.device) for row in ids])
    position = torch.cat([torch.arange(len(row), device=row.device) for row in copies])
    layout = Packed(starts.int(), max(len(row) for row in ids))
    return encoder(torch.cat(copies), position, layout, starts[:-1] + places)


def _uniform(encoder: Forward, ids: Tensor) -> Float[Tensor, "length hidden"]:
    """Run one sequence once for each of its tokens, as rows of one width."""
    width = len(ids)
    place = torch.arange(width, device=ids.device)
    query = place * (width + 1)
    return encoder(ids.repeat(width), place.repeat(width), Uniform(width, width), query)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Turn TF32 off during the comparison: the two sides round differently."""
    if not torch.backends.cuda.matmul.allow_tf32:
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = True
