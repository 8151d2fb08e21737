"""Which positions a step masks: the order of an epoch, cut into blocks.

An epoch visits every free position once. The order is a rank for each position, so that the block
of a step is "rank between k·s and k·(s+1)": no lists, any number of chains at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from maskov.errors import InputError
from maskov.random import Draws, Purpose
from maskov.types import Bool, ChainState, Int, Tensor

ORDERS = ("random", "left-to-right", "replacement")
_NEVER = 2**30


class Positions(ABC):
    """A rule for the positions of each step."""

    # Whether the choice looks at the tokens; if so, it would need its own q(M|x)/q(M|x').
    looks_at_tokens: ClassVar[bool]

    @abstractmethod
    def begin(self, state: ChainState, draws: Draws) -> ChainState:
        """Set the order of the epoch that starts now."""

    @abstractmethod
    def steps(self, state: ChainState) -> Int[Tensor, " chains"]:
        """Return the number of steps of this epoch for each chain."""

    @abstractmethod
    def masked(
        self, state: ChainState, rows: Int[Tensor, " n"], number: int, draws: Draws
    ) -> Bool[Tensor, "n length"]:
        """Return the positions that the epoch's step `number` masks in the chosen chains."""


@dataclass(frozen=True)
class Sweep(Positions):
    """Blocks of positions chosen independently of the tokens.

    `random` is a fresh random order each epoch, `left-to-right` the plain order, and
    `replacement` draws each block anew, so that an epoch may miss or repeat positions.
    """

    looks_at_tokens: ClassVar[bool] = False

    order: str = "random"
    block: int = 1

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise InputError(f"unknown order '{self.order}'; use one of {', '.join(ORDERS)}.")
        if self.block < 1:
            raise InputError(f"a block has at least one position, not {self.block}.")

    def begin(self, state: ChainState, draws: Draws) -> ChainState:
        """Rank the free positions; `replacement` ranks anew at each step instead."""
        return replace(state, rank=self.rank(state.chain, state.step, state.free, draws))

    def rank(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        draws: Draws,
    ) -> Int[Tensor, "n length"]:
        """Return the order of an epoch that begins at `step`."""
        if self.order == "left-to-right":
            return (free.cumsum(1) - 1).masked_fill(~free, _NEVER)
        return _random_rank(chain, step, free, draws, Purpose.ORDER)

    def steps(self, state: ChainState) -> Int[Tensor, " chains"]:
        """Return the blocks needed to visit every free position once."""
        return (state.free.sum(1) + self.block - 1) // self.block

    def masked(
        self, state: ChainState, rows: Int[Tensor, " n"], number: int, draws: Draws
    ) -> Bool[Tensor, "n length"]:
        """Return one block."""
        if self.order == "replacement":
            chain, step, free = state.chain[rows], state.step[rows], state.free[rows]
            return _random_rank(chain, step, free, draws, Purpose.POSITION) < self.block
        rank = state.rank[rows]
        return (rank >= number * self.block) & (rank < (number + 1) * self.block)

    def __str__(self) -> str:
        return f"{self.order}, block={self.block}"


def _random_rank(
    chain: Tensor, step: Tensor, free: Tensor, draws: Draws, purpose: Purpose
) -> Tensor:
    """Rank the free positions by random keys."""
    shape = free.shape
    place = torch.arange(shape[1], device=free.device).expand(shape)
    keys = draws.uniform(
        chain[:, None].expand(shape).flatten(),
        step[:, None].expand(shape).flatten(),
        purpose,
        place.flatten(),
    ).reshape(shape)
    order = keys.masked_fill(~free, torch.inf).argsort(dim=1, stable=True)
    rank = torch.empty_like(order).scatter(1, order, place)
    return rank.masked_fill(~free, _NEVER)


@dataclass(frozen=True)
class LowestConfidence(Positions):
    """Mask-predict's rule: mask what the model was least sure of, fewer each iteration.

    Iteration t of N masks ⌊n·(N−t)/N⌋ of the n free positions, at least one; the first masks
    all. The choice looks at the tokens, so no kernel that uses it leaves a target invariant.
    """

    looks_at_tokens: ClassVar[bool] = True

    iterations: int
    iteration: int = 0

    def begin(self, state: ChainState, draws: Draws) -> ChainState:
        """Rank the free positions from least to most confident."""
        confidence = state.confidence.masked_fill(~state.free, torch.inf)
        order = confidence.argsort(dim=1, stable=True)
        place = torch.arange(order.shape[1], device=order.device).expand(order.shape)
        rank = torch.empty_like(order).scatter(1, order, place)
        return replace(state, rank=rank.masked_fill(~state.free, _NEVER))

    def steps(self, state: ChainState) -> Int[Tensor, " chains"]:
        """One step an iteration."""
        return torch.ones_like(state.chain)

    def masked(
        self, state: ChainState, rows: Int[Tensor, " n"], number: int, draws: Draws
    ) -> Bool[Tensor, "n length"]:
        """Mask the lowest ranks."""
        left = max(self.iterations - self.iteration, 1)
        count = (state.free[rows].sum(1) * left // self.iterations).clamp(min=1)
        return state.rank[rows] < count[:, None]

    def __str__(self) -> str:
        return f"lowest confidence, {self.iterations} iterations"
