"""A kernel moves chains: `init` once, then `step` after `step`, both called by the one epoch loop.

Kernels hold no state: chains in, `(chains, info)` out. To write one, subclass `Kernel`; to combine
some, see `maskov.kernels.compose`; `maskov.testing.check_kernel` proves either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.random import Rng
from maskov.types import Chains, Int, Proposal, StepInfo, Tensor


class Kernel(ABC):
    """A way to move chains."""

    # The energy whose distribution the kernel is meant to sample, if it has one.
    energy: Energy | None = None
    # Whether chains may go through this kernel asynchronously (`maskov.execution.asynchronous`).
    asynchronous: bool = False
    # Whether the kernel's first step fills every blank by itself.
    fills_blanks: bool = False
    # Rows of a batch that belong to one chain, neighbours in it; the first of them is the chain.
    replicas: int = 1
    # The distribution from which blanks are filled before the first epoch.
    conditional: MaskedConditional = MaskedConditional()

    @property
    @abstractmethod
    def leaves_invariant(self) -> bool:
        """Whether a step leaves the kernel's target distribution unchanged."""

    @abstractmethod
    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Add what the kernel caches about the current tokens, where it is not there already."""

    @abstractmethod
    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Move the chosen chains once; the others stay as they are.

        The chains returned have `step` and `number` counted up (see `counted`).
        """

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Prepare the epoch that starts now, such as its order of positions."""
        return chains

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the number of steps of an epoch for each chain."""
        return chains.visits

    def end(self, chains: Chains, rng: Rng) -> Chains:
        """Complete the epoch whose steps are all done."""
        return chains

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Kernel:
        """Return the kernel as it is in one epoch, with the schedule's values where it has some."""
        return self

    def with_energy(self, energy: Energy) -> Kernel:
        """Return this kernel with another energy as its target."""
        raise InputError(
            f"'{self}' cannot take another energy for its burn-in: drop --burn-in-energy."
        )

    def forced(self) -> Kernel | None:
        """Return this kernel accepting everything, for initialisation; None if it cannot."""
        return None

    @property
    def reaches_everything(self) -> bool:
        """Whether every allowed sequence can be reached."""
        return True


def check_keeps_constraints(move: Move) -> None:
    """Refuse constraints that a move does not know of."""
    if move.conditional.constraints and not move.keeps_constraints:
        raise InputError(
            f"the move '{type(move).__qualname__}' does not keep constraints: use site, span, "
            "insert-delete or resize, or set its `keeps_constraints` if it does."
        )


def counted(chains: Chains, rows: Int[Tensor, " n"]) -> Chains:
    """Count a step of the chosen chains."""
    one = torch.ones_like(rows)
    return replace(
        chains,
        step=chains.step.index_add(0, rows, one),
        number=chains.number.index_add(0, rows, one),
    )


def with_tokens(chains: Chains, proposal: Proposal, accepted: Tensor) -> Chains:
    """Put the accepted tokens, and how sure the model was of them, in their place."""
    rows, taken = proposal.rows, accepted[:, None]
    tokens = torch.where(taken, proposal.tokens, chains.tokens[rows])
    confidence = torch.where(taken, proposal.confidence, chains.confidence[rows])
    lengths = torch.where(accepted, proposal.lengths, chains.lengths[rows])
    if proposal.resized is not None:
        free = torch.where(taken, proposal.resized.free, chains.free[rows])
        region = torch.where(taken, proposal.resized.region, chains.region[rows])
        chains = replace(
            chains,
            free=chains.free.index_copy(0, rows, free),
            region=chains.region.index_copy(0, rows, region),
        )
    return replace(
        chains,
        tokens=chains.tokens.index_copy(0, rows, tokens),
        lengths=chains.lengths.index_copy(0, rows, lengths),
        confidence=chains.confidence.index_copy(0, rows, confidence),
    )
