# mypy: ignore-errors
"""Random numbers, and what is read of the scores of a vocabulary, as Triton kernels; for GPUs.

The numbers are those of `maskov.random`, bit for bit. To draw a token, PyTorch takes about a
dozen kernels, and most of them write all scores in float64; here one kernel reads them.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

_NUMBERS, _SCORES = 256, 2048  # that a program works on at once


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
        grid = (-(-len(out) // _NUMBERS),)
        flat = (part.contiguous() for part in (chain, step, index))
        _uniform[grid](*flat, out, len(out), seed & 0xFFFFFFFF, seed >> 32, purpose, TILE=_NUMBERS)
    return out


@triton.jit
def _load(scores, forbidden, at, vocabulary):
    inside = at < vocabulary
    score = tl.load(scores + at, mask=inside, other=float("-inf")).to(tl.float64)
    return score, tl.load(forbidden + at, mask=inside, other=1) == 0


@triton.jit
def _share(score, allowed, top, heat):
    return tl.where(allowed, tl.exp((score - top) / heat), 0.0)


@triton.jit(do_not_specialize=["rows"])
def _read(
    logits, forbidden, current, uniform, temperature, token, found, rows, vocabulary,
    DRAWS: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    scores, heat = logits + row * vocabulary, tl.load(temperature)
    place = tl.arange(0, TILE)
    lowest = tl.full([TILE], float("-inf"), tl.float64)
    every, among = lowest, lowest
    for begin in range(0, vocabulary, TILE):
        score, allowed = _load(scores, forbidden, begin + place, vocabulary)
        every = tl.maximum(every, score)
        among = tl.maximum(among, tl.where(allowed, score, lowest))
    highest, top = tl.max(every, 0), tl.max(among, 0)
    whole = tl.zeros([TILE], tl.float64)
    total = tl.sum(whole, 0)
    for begin in range(0, vocabulary, TILE):
        score, allowed = _load(scores, forbidden, begin + place, vocabulary)
        whole += tl.exp(score - highest)
        total += tl.sum(_share(score, allowed, top, heat), 0)
    log_total = tl.log(total)
    old = tl.load(current + row)
    here = tl.minimum(old, vocabulary - 1)
    own = tl.load(scores + here).to(tl.float64)
    banned = (tl.load(forbidden + here) != 0) | (old >= vocabulary)
    log_q = tl.where(banned, float("-inf"), (own - top) / heat - log_total)
    tl.store(found + rows + row, log_q)
    tl.store(found + 3 * rows + row, highest + tl.log(tl.sum(whole, 0)))
    tl.store(found + 4 * rows + row, own)
    if DRAWS:
        target = tl.load(uniform + row) * total
        before = tl.sum(tl.zeros([TILE], tl.float64), 0)
        first, last = vocabulary, 0
        for begin in range(0, vocabulary, TILE):
            at = begin + place
            score, allowed = _load(scores, forbidden, at, vocabulary)
            share = _share(score, allowed, top, heat)
            # The first token that lifts the sum above the target, and the last that lifts it.
            passed = (before + tl.cumsum(share, 0) > target) & (share > 0)
            first = tl.minimum(first, tl.min(tl.where(passed, at, vocabulary), 0))
            last = tl.maximum(last, tl.max(tl.where(share > 0, at, 0), 0))
            before += tl.sum(share, 0)
        new = tl.minimum(first, last)
        drawn = tl.load(scores + new).to(tl.float64)
        tl.store(token + row, new.to(tl.int64))
        tl.store(found + row, (drawn - top) / heat - log_total)
        tl.store(found + 2 * rows + row, drawn)


@cache
def _number(value: float, device: torch.device) -> torch.Tensor:
    """Return a number on the device: as an argument it would lose precision."""
    return torch.tensor([value], dtype=torch.float64, device=device)


def read(
    forbidden: torch.Tensor,
    temperature: float,
    logits: torch.Tensor,
    current: torch.Tensor,
    uniform: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """Read rows of scores; draw by `uniform` numbers, one a row, if there are some.

    Return the drawn token, log q of it and of the current one, the drawn one's score, the
    log-sum-exp of all, and the current one's score.
    """
    rows, vocabulary = logits.shape
    found = torch.empty((5, rows), dtype=torch.float64, device=logits.device)
    token, draws = torch.empty_like(current), uniform is not None
    if rows:
        _read[(rows,)](
            logits.contiguous(), forbidden.view(torch.uint8), current.contiguous(),
            uniform.contiguous() if draws else found, _number(temperature, logits.device), token,
            found, rows, vocabulary, DRAWS=draws,
            TILE=min(_SCORES, 1 << (vocabulary - 1).bit_length()), num_warps=8,
        )  # fmt: skip
    return token, *found
