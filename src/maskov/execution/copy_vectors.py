# mypy: ignore-errors
# ruff: noqa: N803 - compile-time constants are in capitals, as is usual in Triton
"""Copy chosen vectors as one Triton kernel, for GPUs: the others are not even read."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Places that one program looks at.
_PLACES = 16


@triton.jit
def _copy(
    target,
    source,
    chosen,
    row,
    length,
    source_row,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PLACES: tl.constexpr,
):
    chain = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * PLACES
    column = tl.arange(0, TILE)
    inside = column < WIDTH
    base = source + tl.load(row + chain) * source_row
    for place in range(first, tl.minimum(first + PLACES, length)):
        if tl.load(chosen + chain * length + place):
            vector = tl.load(base + place * WIDTH + column, mask=inside)
            tl.store(target + (chain * length + place) * WIDTH + column, vector, mask=inside)


def copy_vectors(
    target: torch.Tensor, source: torch.Tensor, chosen: torch.Tensor, row: torch.Tensor
) -> None:
    """Set `target[chain, place]` to `source[row[chain], place]` where it is `chosen`."""
    chains, length, width = target.shape
    if not chains:
        return
    tile = 1 << (width - 1).bit_length()
    grid = (chains, -(-length // _PLACES))
    _copy[grid](
        target, source, chosen.view(torch.uint8), row, length, source.stride(0),
        WIDTH=width, TILE=tile, PLACES=_PLACES, num_warps=min(max(tile // 256, 1), 8),
    )  # fmt: skip
