# mypy: ignore-errors
"""Philox as one Triton kernel, bit for bit what `maskov.random` computes; for GPUs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_TILE = 256


@triton.jit(do_not_specialize=["key_low", "key_high", "purpose"])
def _uniform(chain, step, index, out, count, key_low, key_high, purpose, TILE: tl.constexpr):  # noqa: N803
    low = tl.full([TILE], 0xFFFFFFFF, tl.int64)
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < count
    when = tl.load(step + at, mask=inside, other=0)
    c0 = tl.load(chain + at, mask=inside, other=0) & low
    c1 = when & low
    c2 = tl.load(index + at, mask=inside, other=0) & low
    # Steps beyond 2**32 spill into the word that holds the purpose.
    c3 = (when >> 32 << 8) | purpose
    k0 = tl.zeros([TILE], tl.int64) + key_low
    k1 = tl.zeros([TILE], tl.int64) + key_high
    for _ in tl.static_range(10):
        p0 = c0 * 0xD2511F53
        p1 = c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & low) ^ c1 ^ k0, p1 & low, (p0 >> 32 & low) ^ c3 ^ k1, p0 & low
        k0 = (k0 + 0x9E3779B9) & low
        k1 = (k1 + 0xBB67AE85) & low
    bits = (c0 >> 5 << 26) | (c1 >> 6)
    tl.store(out + at, bits.to(tl.float64) * 1.1102230246251565e-16, mask=inside)


def uniform(
    chain: torch.Tensor,
    step: torch.Tensor,
    index: torch.Tensor,
    seed: int,
    purpose: int,
) -> torch.Tensor:
    """Return one number in [0, 1) for each row."""
    out = torch.empty(chain.shape, dtype=torch.float64, device=chain.device)
    if len(out):
        grid = (-(-len(out) // _TILE),)
        flat = (part.contiguous() for part in (chain, step, index))
        _uniform[grid](*flat, out, len(out), seed & 0xFFFFFFFF, seed >> 32, purpose, TILE=_TILE)
    return out
