"""A move proposes: it chooses its own positions and says how probable both directions are.

To write one, subclass `Move` and implement `propose`; `maskov.testing.check_move` proves it. A
move is state-free: what an epoch needs to remember (the order of its positions) is in the chains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from maskov.models.scorer import Scorer
from maskov.moves.conditional import MaskedConditional
from maskov.random import Rng
from maskov.types import Chains, Int, Proposal, Tensor


class Move(ABC):
    """A way to propose other sequences."""

    # Whether its positions are chosen by looking at the tokens in a way its probabilities leave
    # out; if so, no kernel that uses the move leaves a target invariant.
    irreversible: bool = False
    # Whether it proposes only what the constraints of its `conditional` allow. A subclass that
    # proposes by its own rules says so itself.
    keeps_constraints: bool = False
    # The distribution from which blanks are filled before the first epoch.
    conditional: MaskedConditional = MaskedConditional()

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

    def at(self, epoch: int, block: int | None) -> Move:
        """Return the move as it is in one epoch; `block` is the schedule's, if it has one."""
        return self

    @property
    def reaches_everything(self) -> bool:
        """Whether every allowed token can be proposed everywhere."""
        return self.conditional.reaches_everything
