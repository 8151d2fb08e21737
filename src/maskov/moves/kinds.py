"""The moves: sites and blocks, windows of neighbours, and windows that change their size.

A *site* move masks one position or a block of them and draws new tokens for them.

With M the masked set, chosen without looking at the tokens, the context is the sequence without M
in both directions, so that

    q(x'|x) = Π_{i∈M} q(x'_i | x without M),    q(x|x') = Π_{i∈M} q(x_i | x without M)

and both come from the same conditionals. Positions that keep their token appear in both. A chain
that caches the masked passes of its tokens proposes single sites for free.

An epoch visits every free position once. The order is a rank for each position, so that the block
of a step is "rank between k·s and k·(s+1)": no lists, any number of chains at once.

A *window* masks neighbours and fills them one after the other, each given those before it.

A *span* keeps its size. The size of the window, its place and the order o_1, …, o_k of filling are
drawn without looking at the tokens. With W the window,

    q(x'|x) = Π_j q(x'_{o_j} | x without W, x'_{o_1}, …, x'_{o_{j−1}})

and the reverse is the same product with the old tokens, in the same window and order. Neighbours
thus move together, where independent draws would contradict each other.

Passes: k forward. Of the reverse the first is shared and the last is in the chain's cache, so k − 2
more for k > 2, and fewer where the tokens drawn so far are the old ones. The last forward pass
masks one place of the proposal, so that its energy needs one pass less. Where the chain caches
passes that mask groups of positions, the last place is drawn from the pass that masks its group, in
both directions, which makes it one of the proposal's energy again.

A *resize* replaces the window by one of another size: from 0 to 1 tokens is an insertion, from 1 to
0 a deletion. Here q(x'|x) is the product over the l new positions and q(x|x') that over the k old
ones. Pairs (k, l) and (l, k) are equally probable. A region of m positions has m − k + 1 windows of
size k, and m' − l + 1 of size l after the move, which is the same number, so that the choice of the
window cancels. A move that would leave the bounds of its region, or finds no window, stays where it
is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from maskov.errors import refuse
from maskov.models.scorer import Scorer
from maskov.moves.base import NEVER, MaskedConditional, Move, numbered, random_rank, ranked
from maskov.moves.filling import Filling, Windows
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Proposal, Resized, Tensor

ORDERS = ("random", "left-to-right")
# What the numbers of a step are drawn for, besides the keys of its order.
_SIZE, _PLACE, _KEYS = 0, 1, 2
_PAIR, _REGION, _WINDOW, _ORDERS = 0, 1, 2, 3
INSERT_DELETE = ((0, 1),)
WINDOWS = ((1, 2), (2, 3), (1, 3))


@dataclass(frozen=True)
class Sweep:
    """Blocks of positions chosen independently of the tokens.

    `random` is a fresh random order each epoch, `left-to-right` the plain order.
    """

    order: str = "random"
    block: int = 1

    def __post_init__(self) -> None:
        refuse(
            (
                self.order not in ORDERS,
                f"unknown order '{self.order}'; use one of {', '.join(ORDERS)}.",
            ),
            (self.block < 1, f"a block has at least one position, not {self.block}."),
        )

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Rank the free positions."""
        return replace(chains, rank=self.rank(chains.chain, chains.step, chains.free, rng))

    def rank(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order of an epoch that begins at `step`."""
        if self.order == "left-to-right":
            return (free.cumsum(1) - 1).masked_fill(~free, NEVER)
        return random_rank(chain, step, free, rng, Purpose.ORDER)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the blocks needed to visit every free position once."""
        return (chains.visits + self.block - 1) // self.block

    def masked(
        self,
        chains: Chains,
        rows: Int[Tensor, " n"],
        rng: Rng,
        block: Int[Tensor, " n"] | None = None,
    ) -> Bool[Tensor, "n length"]:
        """Return one block, of these sizes if they are given.

        Where lengths may change, positions come and go within an epoch, and every block is drawn
        anew.
        """
        size = torch.full_like(rows, self.block) if block is None else block
        if chains.resizable:
            chain, step, free = chains.chain[rows], chains.step[rows], chains.free[rows]
            return random_rank(chain, step, free, rng, Purpose.POSITION) < size[:, None]
        # A population may make more moves at a point than there are blocks.
        steps = (chains.visits[rows] + size - 1) // size
        first = chains.epoch_step[rows] % steps.clamp(min=1) * size
        rank, first = chains.rank[rows], first[:, None]
        return (rank >= first) & (rank < first + size[:, None])

    def at(self, epoch: int, block: int | None) -> Sweep:
        """Take the schedule's block."""
        return self if block is None else replace(self, block=block)

    def __str__(self) -> str:
        return f"{self.order}, block={self.block}"


@dataclass(frozen=True)
class LowestConfidence:
    """Mask-predict's rule: mask what the model was least sure of, fewer each iteration.

    Iteration t of N masks ⌊n·(N−t)/N⌋ of the n free positions, at least one; the first masks
    all. The choice looks at the tokens, so no kernel that uses it leaves a target invariant.
    """

    iterations: int
    iteration: int = 0

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Rank the free positions from least to most confident."""
        return replace(chains, rank=ranked(chains.confidence, chains.free))

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """One step an iteration."""
        return torch.ones_like(chains.chain)

    def masked(self, chains: Chains, rows: Int[Tensor, " n"], rng: Rng) -> Bool[Tensor, "n length"]:
        """Mask the lowest ranks."""
        left = max(self.iterations - self.iteration, 1)
        count = (chains.free[rows].sum(1) * left // self.iterations).clamp(min=1)
        return chains.rank[rows] < count[:, None]

    def at(self, epoch: int, block: int | None) -> LowestConfidence:
        """Count the iterations by the epochs."""
        return replace(self, iteration=epoch)

    def __str__(self) -> str:
        return f"lowest confidence, {self.iterations} iterations"


@dataclass(frozen=True)
class Site(Move):
    """Resample the positions that `positions` names from the masked `conditional`.

    One position at a time is the paper's Algorithm 1; several are its block variant.
    """

    keeps_constraints = True

    conditional: MaskedConditional = MaskedConditional()
    positions: Sweep | LowestConfidence = Sweep()

    def __post_init__(self) -> None:
        refuse(
            (
                self.conditional.constraints and self.irreversible,
                "mask-predict fills all positions at once, whatever the constraints: use another "
                "kernel, or drop them.",
            )
        )

    @property
    def irreversible(self) -> bool:  # type: ignore[override]
        """True if the positions are chosen by looking at the tokens."""
        return isinstance(self.positions, LowestConfidence)

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Rank the positions."""
        return self.positions.begin(chains, rng)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the blocks of an epoch."""
        return self.positions.steps(chains)

    def at(self, epoch: int, block: int | None) -> Site:
        """Follow the schedule's block size."""
        return replace(self, positions=self.positions.at(epoch, block))

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Mask the next block of each chain and draw it."""
        rank = self.positions.masked(chains, rows, rng).long() - 1
        return Filling(self.conditional, chains, rows, rank, scorer, rng).proposal()

    def __str__(self) -> str:
        return f"{self.conditional}, {self.positions}"


class Window(Move):
    """A move whose step fills a `window` of each chain, position by position.

    A GPU may do so in rounds (`maskov.execution.rounds`) unless `propose` is overridden.
    """

    keeps_constraints = True

    @abstractmethod
    def window(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order in which a step fills its window, −1 outside of it.

        Nothing may synchronise with the device.
        """

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Draw a window for each chain and fill it."""
        window = self.window(chains.chain[rows], chains.step[rows], chains.free[rows], rng)
        return Filling(self.conditional, chains, rows, window, scorer, rng).proposal()


@dataclass(frozen=True)
class Span(Window):
    """Resample windows of neighbouring free positions, each position given those before it.

    A window has one of `sizes` positions, drawn by their `weights` (default: evenly). Neighbours
    are counted among the free positions, so that blanks of a template are moved together, too.
    """

    conditional: MaskedConditional = MaskedConditional()
    sizes: tuple[int, ...] = (2, 3)
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        refuse(
            (
                not self.sizes or any(size < 1 for size in self.sizes),
                "a span has at least one position: write span(2:3).",
            ),
            (
                self.weights and len(self.weights) != len(self.sizes),
                "a span has one weight for each of its sizes.",
            ),
            (
                not all(weight > 0 for weight in self.weights),
                "the weights of span sizes must be above 0.",
            ),
        )

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return so many steps that an epoch resamples about every free position once."""
        mean = float((self._chances * torch.tensor(self.sizes)).sum())
        return (chains.visits / mean).ceil().long().clamp(min=1)

    def window(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order in which a step fills its window, −1 outside of it."""
        numbers = numbered(chain, step, _KEYS + free.shape[1], rng, Purpose.POSITION)
        size = torch.full_like(chain, self.sizes[0])
        # The unit interval is cut into the sizes.
        bounds = self._chances.cumsum(0)[:-1].tolist()
        for bound, larger in zip(bounds, self.sizes[1:], strict=True):
            size = torch.where(numbers[:, _SIZE] >= bound, larger, size)
        count = free.sum(1)
        size = torch.minimum(size, count)
        first = (numbers[:, _PLACE] * (count - size + 1)).long()
        # Counted from the first position of the window on, among those that are free.
        among = free.cumsum(1) - first[:, None]
        inside = free & (among > 0) & (among <= size[:, None])
        return torch.where(inside, ranked(numbers[:, _KEYS:], inside), -1)

    @property
    def _chances(self) -> Float[Tensor, " sizes"]:
        weights = self.weights or (1.0,) * len(self.sizes)
        chances = torch.tensor(weights, dtype=torch.float64)
        return chances / chances.sum()

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        weights = ",".join(f"{weight:g}" for weight in self.weights)
        return f"{self.conditional}, spans of {sizes}" + (f" by {weights}" if weights else "")


@dataclass(frozen=True)
class Resize(Move):
    """Replace a window by one of another size; `pairs` of sizes are taken both ways, evenly."""

    keeps_constraints = True

    conditional: MaskedConditional = MaskedConditional()
    pairs: tuple[tuple[int, int], ...] = INSERT_DELETE

    def __post_init__(self) -> None:
        refuse(
            (
                not self.pairs or any(not 0 <= less < more for less, more in self.pairs),
                "a window is resized from fewer to more positions, as in (0, 1).",
            ),
        )

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Draw a window and its new size for each chain, and fill it."""
        rank, new, resized = self.windows(chains.rows(rows), scorer.model.mask_id, rng)
        return Filling(self.conditional, chains, rows, rank, scorer, rng, new, resized).proposal()

    def windows(
        self, chains: Chains, mask_id: int, rng: Rng
    ) -> tuple[Int[Tensor, "n length"], Windows, Resized]:
        """Draw a window for every chain without looking at the tokens.

        Return the order of filling the old ones, the sequences with the new ones masked, and what
        becomes of the others. Windows are empty where the move stays where it is. Nothing waits for
        the device.
        """
        refuse(
            (
                not chains.resizable,
                "the lengths of these chains are fixed: no window can be resized.",
            )
        )
        chain, step = chains.chain, chains.step
        device, (count, width) = chain.device, chains.tokens.shape
        # After the first numbers, each size of a window has its own for the order of its positions.
        sizes = range(1, max(more for _, more in self.pairs) + 1)
        numbers = numbered(chain, step, _ORDERS + sum(sizes), rng, Purpose.POSITION)
        orders = torch.split(numbers[:, _ORDERS:], [*sizes], dim=1)
        # Which way is part of the proposal: its probability is the same both ways.
        ways = _ways(self.pairs, device)
        evenly = torch.full((count, len(ways)), 1 / len(ways), dtype=torch.float64, device=device)
        way = rng.categorical(evenly, chain, step, Purpose.POSITION, torch.full_like(chain, _PAIR))
        old, new = ways[way].unbind(1)
        chosen = (numbers[:, _REGION] * chains.bounds.shape[1]).long()
        mine = chains.region == chosen[:, None]
        held = mine.sum(1)
        bounds = chains.bounds.gather(1, chosen[:, None, None].expand(-1, -1, 2))
        least, most = bounds[:, 0].unbind(1)
        fits = (old <= held) & (held - old + new >= least) & (held - old + new <= most)
        old, new = old * fits, new * fits
        start = mine.int().argmax(1) + (numbers[:, _WINDOW] * (held - old + 1)).long()
        position = torch.arange(width, device=device).expand(count, width)
        lengths = chains.lengths - old + new
        # Tokens after the window move by the difference of the sizes.
        after = position >= (start + new)[:, None]
        window = (position >= start[:, None]) & ~after
        origin = torch.where(after, position + (old - new)[:, None], position)
        origin = origin.masked_fill(window | (position >= lengths[:, None]), -1)

        def moved(values: Tensor, otherwise: Tensor | int | bool) -> Tensor:
            return torch.where(origin >= 0, values.gather(1, origin.clamp(min=0)), otherwise)

        resized = Resized(
            free=moved(chains.free, False) | window,
            region=torch.where(window, chosen[:, None], moved(chains.region, -1)),
            origin=origin,
            removed=(position >= start[:, None]) & (position < (start + old)[:, None]),
            start=start,
            size=new,
        )
        filled = Windows(moved(chains.tokens, mask_id), lengths, _ranks(start, new, orders, width))
        return _ranks(start, old, orders, width), filled, resized

    def __str__(self) -> str:
        pairs = ",".join(f"{less}:{more}" for less, more in self.pairs)
        return f"{self.conditional}, windows of {pairs}"


@lru_cache
def _ways(pairs: tuple[tuple[int, int], ...], device: torch.device) -> Int[Tensor, "ways 2"]:
    """Return the pairs of sizes both ways; kept, since a device waits for what it is sent."""
    return torch.tensor(
        [way for less, more in pairs for way in ((less, more), (more, less))], device=device
    )


def _ranks(
    start: Int[Tensor, " n"], size: Int[Tensor, " n"], orders: Sequence[Tensor], width: int
) -> Int[Tensor, "n length"]:
    """Return the order of filling windows; it depends on the size alone, so both ways agree."""
    rank = torch.full((len(start), width), -1, device=start.device)
    offset = torch.arange(width, device=start.device) - start[:, None]
    for held, keys in enumerate(orders, 1):
        order = keys.argsort(dim=1, stable=True).argsort(dim=1)
        inside = (size == held)[:, None] & (offset >= 0) & (offset < held)
        rank = torch.where(inside, order.gather(1, offset.clamp(0, held - 1)), rank)
    return rank
