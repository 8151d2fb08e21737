"""The paper's two energies: sums over positions of what the model says when each alone is masked.

    E_raw(x)  = −Σ_t logit_t(x_t | x without t)
    E_norm(x) = −Σ_t log softmax_t(x_t | x without t)

The softmax is the model's own, over its full vocabulary. E_raw is defined up to a shift of the
logits in each context, so its values are not comparable between checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Float, Sequences, Tensor


class SiteEnergy(Energy):
    """An energy that is a sum over the masked passes of the sequence."""

    needs_sites = True

    sums_over_sites = True

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the term of each position, zero at padding."""
        if sequences.sites is None:
            raise InputError(f"the energy '{self}' needs the masked passes of its sequences.")
        terms = self.of_scores(sequences.sites.logit, sequences.sites.log_normaliser)
        return torch.where(sequences.inside, terms, 0.0)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Sum the terms in float64."""
        return self.terms(model, sequences).sum(1)


@dataclass(frozen=True)
class Raw(SiteEnergy):
    """E_raw: minus the sum of the raw logits."""

    needs_normaliser = False

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the logit."""
        return -logit

    def __str__(self) -> str:
        return "raw"


@dataclass(frozen=True)
class Norm(SiteEnergy):
    """E_norm: minus the pseudo-log-likelihood."""

    needs_normaliser = True

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the log-softmax."""
        return log_normaliser - logit

    def __str__(self) -> str:
        return "norm"
