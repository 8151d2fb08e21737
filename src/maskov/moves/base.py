"""A move proposes: it chooses its own positions and says how probable both directions are.

To write one, subclass `Move` and implement `propose`; `maskov.testing.check_move` proves it. A
move is state-free: what an epoch needs to remember (the order of its positions) is in the chains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from maskov.models.scorer import Scorer
from maskov.moves.conditional import MaskedConditional
from maskov.random import Rng
from maskov.types import Bool, Chains, Int, Proposal, Tensor


class Move(ABC):
    """A way to propose other sequences."""

    # Whether its positions are chosen by looking at the tokens in a way its probabilities leave
    # out; if so, no kernel that uses the move leaves a target invariant.
    irreversible: bool = False
    # Whether chains may make this move asynchronously (`maskov.execution.asynchronous`).
    asynchronous: bool = False
    # Whether each step fills a `window`, position by position, which a GPU may do asynchronously
    # (`maskov.execution.async_spans`).
    fills_windows: ClassVar[bool] = False
    # Whether its first step fills every blank by itself.
    fills_blanks: bool = False
    # Whether it proposes only what the constraints of its `conditional` allow.
    keeps_constraints: bool = False
    # The distribution from which blanks are filled before the first epoch.
    conditional: MaskedConditional = MaskedConditional()

    def __init_subclass__(cls) -> None:
        # A subclass may propose by its own rules, so it says itself what it can do.
        for name in ("asynchronous", "fills_windows", "keeps_constraints"):
            if name not in vars(cls):
                setattr(cls, name, False)

    @abstractmethod
    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Propose a sequence for each of the chosen chains."""

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Set the order of the epoch that starts now."""
        return chains

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the number of steps of this epoch for each chain."""
        return chains.visits

    def rank(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order of single sites in an epoch that begins at `step`.

        Only asynchronous moves have one: step r of the epoch resamples the position of rank r from
        the move's `conditional`.
        """
        raise NotImplementedError

    def window(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order in which a step fills its window, −1 outside of it.

        Only moves that fill windows have one. Nothing may synchronise with the device.
        """
        raise NotImplementedError

    def at(self, epoch: int, block: int | None) -> Move:
        """Return the move as it is in one epoch; `block` is the schedule's, if it has one."""
        return self

    @property
    def reaches_everything(self) -> bool:
        """Whether every allowed token can be proposed everywhere."""
        return self.conditional.reaches_everything
