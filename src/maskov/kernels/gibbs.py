"""Kernels that accept everything: degenerate Gibbs, and mask-predict as a special case of it.

A masked LM's conditionals are generally inconsistent with any joint distribution, so drawing from
them in turn has no defined target ("degenerate" Gibbs in the paper). It is here for comparison, for
starting chains, and because mask-predict is this kernel with the most probable token at the
positions of lowest confidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from maskov.kernels.base import Kernel, check_keeps_constraints, counted, with_tokens
from maskov.models.scorer import Scorer
from maskov.moves import LowestConfidence, MaskedConditional, Move, Site
from maskov.random import Rng
from maskov.types import Chains, Int, Sequences, StepInfo, Tensor


@dataclass(frozen=True)
class Gibbs(Kernel):
    """Propose by a move and keep whatever was proposed."""

    move: Move = Site()

    def __post_init__(self) -> None:
        check_keeps_constraints(self.move)

    @property
    def leaves_invariant(self) -> bool:
        """Never: the conditionals are inconsistent with any joint distribution."""
        return False

    @property
    def conditional(self) -> MaskedConditional:  # type: ignore[override]
        """The move's."""
        return self.move.conditional

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """Whether the first step masks everything, as in mask-predict."""
        return isinstance(self.move, Site) and self.move.irreversible

    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Cache nothing: every draw asks the model about the tokens as they are."""
        return chains.forget()

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Set the move's order."""
        return self.move.begin(chains, rng)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the move's steps."""
        return self.move.steps(chains)

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Gibbs:
        """Let the move follow the schedule."""
        return replace(self, move=self.move.at(epoch, block))

    def forced(self) -> Gibbs:
        """Return itself: it accepts everything anyway."""
        return self

    @property
    def reaches_everything(self) -> bool:
        """Whether the move does."""
        return self.move.reaches_everything

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Propose and accept."""
        proposal = self.move.propose(chains, rows, scorer, rng)
        # Where constraints left nothing to propose, chains stay.
        sequences = Sequences(proposal.tokens, proposal.lengths, reference=chains.reference[rows])
        accepted = self.conditional.possible(sequences, scorer.model)
        unknown = torch.full_like(proposal.log_q_forward, torch.nan)
        info = StepInfo(
            proposal=proposal,
            energy_old=unknown,
            energy_new=unknown,
            log_ratio=unknown[:, None],
            uniform=unknown[:, None],
            log_acceptance=torch.zeros_like(unknown),
            accepted=accepted,
            passes=proposal.passes,
            calls=proposal.passes.new_zeros((len(rows), 0)),
        )
        return counted(with_tokens(chains, proposal, accepted).forget(), rows), info

    def __str__(self) -> str:
        return f"gibbs({self.move})"


def mask_predict(iterations: int) -> Gibbs:
    """Return Mask-Predict (Ghazvininejad et al. 2019): greedy, re-masking what is least sure."""
    return Gibbs(Site(MaskedConditional(temperature=0), LowestConfidence(iterations)))
