"""The span move: mask a window of neighbours and fill it one after the other.

The size of the window, its place and the order o_1, …, o_k of filling are drawn without looking at
the tokens. With W the window,

    q(x'|x) = Π_j q(x'_{o_j} | x without W, x'_{o_1}, …, x'_{o_{j−1}})

and the reverse is the same product with the old tokens, in the same window and order. Neighbours
thus move together, each given those before it, where independent draws would contradict each other.

Passes: k forward. Of the reverse the first is shared and the last is in the chain's cache, so k − 2
more for k > 2, and fewer where the tokens drawn so far are the old ones. The last forward pass
masks one place of the proposal, so that its energy needs one pass less.

Where the chain caches passes that mask groups of positions, the last place is drawn from the pass
that masks its group, in both directions. So that pass, too, is one of the proposal's energy, and
its reverse is in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from maskov.errors import InputError
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.filling import Filling
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Proposal, Tensor

# What the numbers of a step are drawn for, besides the keys of its order.
_SIZE, _PLACE, _KEYS = 0, 1, 2


@dataclass(frozen=True)
class Span(Move):
    """Resample windows of neighbouring free positions, each position given those before it.

    A window has one of `sizes` positions, drawn by their `weights` (default: evenly). Neighbours
    are counted among the free positions, so that blanks of a template are moved together, too.
    """

    keeps_constraints = True
    fills_windows: ClassVar[bool] = True

    conditional: MaskedConditional = MaskedConditional()
    sizes: tuple[int, ...] = (2, 3)
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.sizes or any(size < 1 for size in self.sizes):
            raise InputError("a span has at least one position: write span(2:3).")
        if self.weights and len(self.weights) != len(self.sizes):
            raise InputError("a span has one weight for each of its sizes.")
        if not all(weight > 0 for weight in self.weights):
            raise InputError("the weights of span sizes must be above 0.")

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return so many steps that an epoch resamples about every free position once."""
        mean = float((self._chances * torch.tensor(self.sizes)).sum())
        return (chains.visits / mean).ceil().long().clamp(min=1)

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Draw a window for each chain and fill it."""
        window = self.window(chains.chain[rows], chains.step[rows], chains.free[rows], rng)
        return Filling(self.conditional, chains, rows, window, scorer, rng).proposal()

    def window(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order in which a step fills its window, −1 outside of it."""

        def uniform(index: int) -> Float[Tensor, " n"]:
            return rng.uniform(chain, step, Purpose.POSITION, torch.full_like(chain, index))

        number, size = uniform(_SIZE), torch.full_like(chain, self.sizes[0])
        for bound, larger in zip(self._bounds, self.sizes[1:], strict=True):
            size = torch.where(number >= bound, larger, size)
        count = free.sum(1)
        size = torch.minimum(size, count)
        first = (uniform(_PLACE) * (count - size + 1)).long()
        among = free.cumsum(1) - 1
        inside = free & (among >= first[:, None]) & (among < (first + size)[:, None])
        place = torch.arange(free.shape[1], device=free.device).expand(free.shape)
        keys = rng.uniform(
            chain[:, None].expand(free.shape).flatten(),
            step[:, None].expand(free.shape).flatten(),
            Purpose.POSITION,
            (place + _KEYS).flatten(),
        ).view(free.shape)
        order = keys.masked_fill(~inside, torch.inf).argsort(dim=1, stable=True)
        rank = torch.empty_like(order).scatter(1, order, place)
        return rank.masked_fill(~inside, -1)

    @property
    def _chances(self) -> Float[Tensor, " sizes"]:
        weights = self.weights or (1.0,) * len(self.sizes)
        chances = torch.tensor(weights, dtype=torch.float64)
        return chances / chances.sum()

    @property
    def _bounds(self) -> list[float]:
        """Where the unit interval is cut into the sizes."""
        bounds: list[float] = self._chances.cumsum(0)[:-1].tolist()
        return bounds

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        weights = ",".join(f"{weight:g}" for weight in self.weights)
        return f"{self.conditional}, spans of {sizes}" + (f" by {weights}" if weights else "")
