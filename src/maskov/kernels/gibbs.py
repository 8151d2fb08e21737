"""Kernels that accept everything: degenerate Gibbs, and mask-predict as a special case of it.

A masked LM's conditionals belong to no joint distribution, so drawing from them in turn leaves
neither energy's distribution invariant ("degenerate" Gibbs in the paper). It is here for
comparison, for starting chains, and because mask-predict is this kernel with the most probable
token at the positions of lowest confidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.execution.scorer import Engine
from maskov.kernels.base import Evaluated, Kernel, with_tokens
from maskov.moves import MaskedConditional
from maskov.moves.positions import LowestConfidence, Positions, Sweep
from maskov.types import ChainState, Proposed, Tensor


@dataclass(frozen=True)
class Gibbs(Kernel):
    """Draw masked positions from the model's conditionals and keep what was drawn."""

    proposal: MaskedConditional = MaskedConditional()
    positions: Positions = Sweep()

    @property
    def leaves_invariant(self) -> bool:
        """Never: the conditionals belong to no joint distribution."""
        return False

    def init(self, state: ChainState, engine: Engine) -> ChainState:
        """Nothing is kept: every draw asks the model about the tokens as they are."""
        return state.forget()

    def evaluate(self, state: ChainState, proposed: Proposed, engine: Engine) -> Evaluated:
        """Ask for nothing, and accept everything."""
        zero = torch.zeros_like(proposed.log_q_forward)
        unknown = torch.full_like(zero, torch.nan)
        none = torch.zeros_like(proposed.rows)
        return Evaluated(zero, unknown, unknown, none, none[:0], None)

    def moved(
        self, state: ChainState, proposed: Proposed, evaluated: Evaluated, accepted: Tensor
    ) -> ChainState:
        """Take the new tokens; what was known of the old ones no longer holds."""
        return with_tokens(state, proposed, accepted).forget()

    def __str__(self) -> str:
        return f"gibbs({self.proposal}, {self.positions})"


def mask_predict(iterations: int) -> Gibbs:
    """Return Mask-Predict (Ghazvininejad et al. 2019): greedy, re-masking what is least sure."""
    return Gibbs(MaskedConditional(temperature=0), LowestConfidence(iterations))
