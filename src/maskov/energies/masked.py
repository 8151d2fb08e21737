"""The paper's two energies: sums over positions of what the model says when each alone is masked.

    E_raw(x)  = −Σ_t logit_t(x_t | x without t)
    E_norm(x) = −Σ_t log softmax_t(x_t | x without t)

The softmax is the model's own, over its full vocabulary. E_raw is defined up to a shift of the
logits in each context, so its values are not comparable between checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskov.energies.base import MaskedEnergy
from maskov.types import Tensor


@dataclass(frozen=True)
class Raw(MaskedEnergy):
    """E_raw: minus the sum of the raw logits."""

    normalised = False

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the logit."""
        return -logit

    def __str__(self) -> str:
        return "raw"


@dataclass(frozen=True)
class Norm(MaskedEnergy):
    """E_norm: minus the pseudo-log-likelihood."""

    normalised = True

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the log-softmax."""
        return log_normaliser - logit

    def __str__(self) -> str:
        return "norm"
