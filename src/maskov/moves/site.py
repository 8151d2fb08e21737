"""The site move: mask one position or a block of them and draw new tokens for them.

With M the masked set, chosen without looking at the tokens, the context is the sequence without M
in both directions, so that

    q(x'|x) = Π_{i∈M} q(x'_i | x without M),    q(x|x') = Π_{i∈M} q(x_i | x without M)

and both come from the same conditionals. Positions that keep their token appear in both. A chain
that caches the masked passes of its tokens proposes single sites for free.

An epoch visits every free position once. The order is a rank for each position, so that the block
of a step is "rank between k·s and k·(s+1)": no lists, any number of chains at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from maskov.errors import refuse
from maskov.models.scorer import Scorer
from maskov.moves.base import NEVER, MaskedConditional, Move, random_rank, ranked
from maskov.moves.filling import Filling
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Int, Proposal, Tensor

ORDERS = ("random", "left-to-right")


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

    def masked(self, chains: Chains, rows: Int[Tensor, " n"], rng: Rng) -> Bool[Tensor, "n length"]:
        """Return one block.

        Where lengths may change, positions come and go within an epoch, and every block is drawn
        anew.
        """
        if chains.resizable:
            chain, step, free = chains.chain[rows], chains.step[rows], chains.free[rows]
            return random_rank(chain, step, free, rng, Purpose.POSITION) < self.block
        # A population may make more moves at a point than there are blocks.
        number = chains.epoch_step[rows] % self.steps(chains)[rows].clamp(min=1)
        rank, number = chains.rank[rows], number[:, None]
        return (rank >= number * self.block) & (rank < (number + 1) * self.block)

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
