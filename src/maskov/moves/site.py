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

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from maskov.errors import InputError
from maskov.models.scorer import Scorer
from maskov.moves.base import NEVER, MaskedConditional, Move, random_rank, ranked
from maskov.moves.filling import Filling
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Int, Proposal, Tensor

ORDERS = ("random", "left-to-right")


class Positions(ABC):
    """A rule for the positions of each step."""

    # Whether the choice looks at the tokens; if so, it would need its own q(M|x)/q(M|x').
    looks_at_tokens: ClassVar[bool]

    @abstractmethod
    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Set the order of the epoch that starts now."""

    @abstractmethod
    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the number of steps of this epoch for each chain."""

    @abstractmethod
    def masked(self, chains: Chains, rows: Int[Tensor, " n"], rng: Rng) -> Bool[Tensor, "n length"]:
        """Return the positions that the next step of the epoch masks in the chosen chains."""

    def at(self, epoch: int, block: int | None) -> Positions:
        """Return the rule as it is in one epoch; `block` is the schedule's, if it has one."""
        return self


@dataclass(frozen=True)
class Sweep(Positions):
    """Blocks of positions chosen independently of the tokens.

    `random` is a fresh random order each epoch, `left-to-right` the plain order.
    """

    looks_at_tokens: ClassVar[bool] = False

    order: str = "random"
    block: int = 1

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise InputError(f"unknown order '{self.order}'; use one of {', '.join(ORDERS)}.")
        if self.block < 1:
            raise InputError(f"a block has at least one position, not {self.block}.")

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
class LowestConfidence(Positions):
    """Mask-predict's rule: mask what the model was least sure of, fewer each iteration.

    Iteration t of N masks ⌊n·(N−t)/N⌋ of the n free positions, at least one; the first masks
    all. The choice looks at the tokens, so no kernel that uses it leaves a target invariant.
    """

    looks_at_tokens: ClassVar[bool] = True

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
    positions: Positions = Sweep()

    def __post_init__(self) -> None:
        if self.conditional.constraints and self.positions.looks_at_tokens:
            raise InputError(
                "mask-predict fills all positions at once, whatever the constraints: use another "
                "kernel, or drop them."
            )

    @property
    def irreversible(self) -> bool:  # type: ignore[override]
        """True if the positions are chosen by looking at the tokens."""
        return self.positions.looks_at_tokens

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
