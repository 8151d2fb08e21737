"""The resize move: a window of neighbours gives way to one of another size.

From 0 to 1 tokens is an insertion, from 1 to 0 a deletion. A pair of sizes (k, l), a region, the
place of the window and an order of filling for every size are drawn without looking at the tokens;
the l new positions are filled one after the other, each given those before it, and the reverse is
the product for the k old ones:

    q(x'|x) = Π_j q(x'_{o_j} | x outside the window, x'_{o_1}, …, x'_{o_{j−1}}),   j = 1 … l

Pairs (k, l) and (l, k) are equally probable. A region of m positions has m − k + 1 windows of size
k, and m' − l + 1 of size l after the move, which is the same number, so that the choice of the
window cancels. A move that would leave the bounds of its region, or finds no window, stays where it
is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.errors import InputError
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.filling import Filling, Windows
from maskov.random import Purpose, Rng
from maskov.types import Chains, Float, Int, Proposal, Resized, Tensor

# What the numbers of a step are drawn for, besides the keys of the orders.
_PAIR, _REGION, _PLACE, _KEYS = 0, 1, 2, 3
INSERT_DELETE = ((0, 1),)
WINDOWS = ((1, 2), (2, 3), (1, 3))


@dataclass(frozen=True)
class Resize(Move):
    """Replace a window by one of another size; `pairs` of sizes are taken both ways, evenly."""

    keeps_constraints = True

    conditional: MaskedConditional = MaskedConditional()
    pairs: tuple[tuple[int, int], ...] = INSERT_DELETE

    def __post_init__(self) -> None:
        if not self.pairs or any(not 0 <= less < more for less, more in self.pairs):
            raise InputError("a window is resized from fewer to more positions, as in (0, 1).")

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Draw a window and its new size for each chain, and fill it."""
        if not chains.resizable:
            raise InputError("the lengths of these chains are fixed: no window can be resized.")
        rank, new, resized = self._windows(chains, rows, scorer.model.mask_id, rng)
        return Filling(self.conditional, chains, rows, rank, scorer, rng, new, resized).proposal()

    def _windows(
        self, chains: Chains, rows: Int[Tensor, " n"], mask_id: int, rng: Rng
    ) -> tuple[Int[Tensor, "n length"], Windows, Resized]:
        """Draw windows without looking at the tokens.

        Return the order of filling the old ones, the sequences with the new ones masked, and what
        becomes of the others. Windows are empty where the move stays where it is.
        """
        chain, step = chains.chain[rows], chains.step[rows]
        device, width = rows.device, chains.tokens.shape[1]

        def uniform(index: int) -> Float[Tensor, " n"]:
            return rng.uniform(chain, step, Purpose.POSITION, torch.full_like(chain, index))

        # Which way is part of the proposal: its probability is the same both ways.
        ways = [pair for less, more in self.pairs for pair in ((less, more), (more, less))]
        evenly = torch.full((len(rows), len(ways)), 1 / len(ways), dtype=torch.float64)
        way = rng.categorical(
            evenly.to(device), chain, step, Purpose.POSITION, torch.full_like(chain, _PAIR)
        )
        old, new = torch.tensor(ways, device=device)[way].unbind(1)
        regions = chains.bounds.shape[1]
        chosen = (uniform(_REGION) * regions).long()
        region = chains.region[rows]
        mine = region == chosen[:, None]
        held = mine.sum(1)
        least, most = chains.bounds[rows, chosen].unbind(1)
        fits = (old <= held) & (held - old + new >= least) & (held - old + new <= most)
        old, new = old * fits, new * fits
        first = mine.int().argmax(1)
        start = first + (uniform(_PLACE) * (held - old + 1)).long()
        position = torch.arange(width, device=device).expand(len(rows), width)
        lengths = chains.lengths[rows] - old + new
        # Tokens after the window move by the difference of the sizes.
        after = position >= (start + new)[:, None]
        window = (position >= start[:, None]) & ~after
        origin = torch.where(after, position + (old - new)[:, None], position)
        origin = origin.masked_fill(window | (position >= lengths[:, None]), -1)
        back = origin.clamp(min=0)

        def moved(values: Tensor, otherwise: Tensor | int | bool) -> Tensor:
            return torch.where(origin >= 0, values[rows].gather(1, back), otherwise)

        resized = Resized(
            changes=fits,
            free=moved(chains.free, False) | window,
            region=torch.where(window, chosen[:, None], moved(chains.region, -1)),
            origin=origin,
            removed=(position >= start[:, None]) & (position < (start + old)[:, None]),
            start=start,
            size=new,
        )
        keys = [[uniform(_KEYS + size * (size - 1) // 2 + j) for j in range(size)]
                for size in range(max(more for _, more in self.pairs) + 1)]  # fmt: skip
        filled = Windows(moved(chains.tokens, mask_id), lengths, _ranks(start, new, keys, width))
        return _ranks(start, old, keys, width), filled, resized

    def __str__(self) -> str:
        pairs = ",".join(f"{less}:{more}" for less, more in self.pairs)
        return f"{self.conditional}, windows of {pairs}"


def _ranks(
    start: Int[Tensor, " n"], size: Int[Tensor, " n"], keys: list[list[Tensor]], width: int
) -> Int[Tensor, "n length"]:
    """Return the order of filling windows; it depends on the size alone, so both ways agree."""
    rank = torch.full((len(start), width), -1, device=start.device)
    for held, columns in enumerate(keys):
        if not held:
            continue
        order = torch.stack(columns, dim=1).argsort(dim=1, stable=True).argsort(dim=1)
        row = (size == held).nonzero().flatten()
        place = start[row, None] + torch.arange(held, device=start.device)
        rank[row[:, None], place] = order[row]
    return rank
