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

from maskov.constraints import PartlyFilled
from maskov.errors import InputError
from maskov.grouping import masked_with
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.site import draw, log_q_of
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, PassedSites, Proposal, Sequences, Tensor, inside

# What the numbers of a step are drawn for, beside the keys of its order.
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
            raise InputError("a span has at least one position: write --span 2:3.")
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
        filling = _Filling(self.conditional, chains, rows, window, scorer, rng)
        for number in range(int(filling.size.max())):
            filling.fill(number)
        return filling.proposal()

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


class _Filling:
    """Windows on their way from the old tokens to the new ones."""

    def __init__(
        self,
        conditional: MaskedConditional,
        chains: Chains,
        rows: Int[Tensor, " n"],
        rank: Int[Tensor, "n length"],
        scorer: Scorer,
        rng: Rng,
    ) -> None:
        self._conditional, self._chains, self._rows = conditional, chains, rows
        self._rank, self._scorer, self._rng = rank, scorer, rng
        self._old, self._new = chains.tokens[rows], chains.tokens[rows].clone()
        self._lengths, self._source = chains.lengths[rows], chains.source[rows]
        self._inside = inside(self._lengths, self._old.shape[1])
        self._groups = None if chains.sites is None else chains.sites.groups
        self._confidence = chains.confidence[rows].clone()
        self.size = (rank >= 0).sum(1)
        zero = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        self._forward, self._reverse = zero, zero.clone()
        self._passes = torch.zeros_like(rows)
        self._passed: list[tuple[Tensor, Tensor, Tensor]] = []

    def fill(self, number: int) -> None:
        """Draw the position that comes at `number` in each window that has one."""
        row = (self.size > number).nonzero().flatten()
        place = (self._rank[row] == number).int().argmax(1)
        last = self.size[row] == number + 1
        # The last pass masks what the passes of the chain's cache mask.
        cache = masked_with(place, self._inside[row], self._groups)
        masked = torch.where(last[:, None], cache, self._rank[row] >= number)
        same = ~(self._new[row] != self._old[row]).any(1)
        hidden = self._ask(row, place, masked, self._new, cached=same & last, last=last)
        # Elsewhere the reverse needs passes of its own, of the old tokens.
        apart = (~same).nonzero().flatten()
        chain, step = self._chains.chain[self._rows][row], self._chains.step[self._rows][row]

        def choose(probabilities: Tensor, part: slice) -> Tensor:
            return self._rng.categorical(
                probabilities, chain[part], step[part], Purpose.TOKEN, place[part]
            )

        old = self._old[row, place]
        drawn = draw(
            hidden, old, choose, self._conditional, self._scorer,
            self._partly(row, place, number, self._new),
        )  # fmt: skip
        reverse = drawn.log_reverse
        if apart.numel():
            back = self._ask(row[apart], place[apart], masked[apart], self._old, cached=last[apart])
            partly = self._partly(row[apart], place[apart], number, self._old)
            only = log_q_of(back, old[apart], self._conditional, self._scorer, partly)
            reverse = reverse.index_copy(0, apart, only)
            reverse = reverse.masked_fill(drawn.stuck, -torch.inf)
        self._forward = self._forward.index_add(0, row, drawn.log_forward)
        self._reverse = self._reverse.index_add(0, row, reverse)
        sure = (drawn.logit - drawn.log_normaliser).exp()
        self._confidence = self._confidence.index_put((row, place), sure)
        self._new = self._new.index_put((row, place), drawn.token)

    def _partly(
        self,
        row: Int[Tensor, " n"],
        place: Int[Tensor, " n"],
        number: int,
        tokens: Int[Tensor, "chains length"],
    ) -> PartlyFilled | None:
        """Describe windows that are filled up to `number` to the constraints."""
        sequences = Sequences(tokens, self._lengths, reference=self._chains.reference[self._rows])
        unfilled = self._rank[row] >= number
        return self._conditional.filling(sequences.rows(row), unfilled, place, self._scorer.model)

    def _ask(
        self,
        row: Int[Tensor, " n"],
        place: Int[Tensor, " n"],
        masked: Bool[Tensor, "n length"],
        tokens: Int[Tensor, "chains length"],
        cached: Bool[Tensor, " n"],
        last: Bool[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n hidden"]:
        """Return the vectors at the places; those of the chain's own passes are in its cache.

        Passes that are `last` are remembered: they are passes of the finished proposal.
        """
        sites, chains = self._chains.sites, self._rows[row]
        if sites is None:
            cached = torch.zeros_like(cached)
        asked = (~cached).nonzero().flatten()
        known = None if sites is None else sites.hidden[chains, place]
        if not asked.numel() and known is not None:
            return known
        queries = Queries(
            tokens[row[asked]], self._lengths[row[asked]], masked[asked], self._source[row[asked]]
        )
        answers = self._scorer.hidden(queries)
        query, at = masked[asked].nonzero(as_tuple=True)
        if last is not None:
            ends = last[asked][query]
            self._passed.append((row[asked][query][ends], at[ends], answers[ends]))
        # Of all masked places of a query only one is wanted here.
        answers = answers[at == place[asked][query]]
        self._passes = self._passes.index_add(0, row[asked], torch.ones_like(asked))
        return answers if known is None else known.index_copy(0, asked, answers)

    def proposal(self) -> Proposal:
        """Return the filled windows."""
        changed = self._new != self._old
        passed = None
        if self._passed:
            row, place, hidden = (torch.cat(column) for column in zip(*self._passed, strict=True))
            passed = PassedSites(row, place, hidden, self._groups)
        return Proposal(
            rows=self._rows,
            masked=self._rank >= 0,
            tokens=self._new,
            lengths=self._lengths,
            changed=changed,
            known=changed & (changed.sum(1) == 1)[:, None],
            confidence=self._confidence,
            log_q_forward=self._forward,
            log_q_reverse=self._reverse,
            passes=self._passes,
            passed=passed,
        )
