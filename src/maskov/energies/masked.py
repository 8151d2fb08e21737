"""The paper's two energies: sums over positions of what the model says when each alone is masked.

    E_raw(x)  = −Σ_t logit_t(x_t | x without t)
    E_norm(x) = −Σ_t log softmax_t(x_t | x without t)

The softmax is the model's own, over its full vocabulary. E_raw is defined up to a shift of the
logits in each context, so its values are not comparable between checkpoints.

With `groups=B` the positions are split into B groups, t mod B, and each place is scored in the pass
that masks its whole group: e(x_t | x without group(t)). That is another energy, of B passes instead
of T; where B is T or more, it is the ordinary one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from maskov.energies.base import Energy, MaskedEnergy, Sum
from maskov.errors import InputError
from maskov.types import Tensor


@dataclass(frozen=True)
class Raw(MaskedEnergy):
    """E_raw: minus the sum of the raw logits."""

    normalised = False

    groups: int | None = None

    def __post_init__(self) -> None:
        _check(self.groups)

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the logit."""
        return -logit

    def __str__(self) -> str:
        return _named("raw", self.groups)


@dataclass(frozen=True)
class Norm(MaskedEnergy):
    """E_norm: minus the pseudo-log-likelihood."""

    normalised = True

    groups: int | None = None

    def __post_init__(self) -> None:
        _check(self.groups)

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the log-softmax."""
        return log_normaliser - logit

    def __str__(self) -> str:
        return _named("norm", self.groups)


def grouped(energy: Energy, groups: int) -> Energy | None:
    """Return an energy with its masked passes in groups of positions; None if it has none, or is.

    It is a target of its own, which chains reach sooner.
    """
    if energy.masked is None or energy.groups is not None:
        return None
    parts = tuple(
        (weight, replace(part, groups=groups) if isinstance(part, Raw | Norm) else part)
        for weight, part in energy.parts
    )
    if any(isinstance(part, MaskedEnergy) and part.groups is None for _, part in parts):
        return None
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else Sum(parts)


def _check(groups: int | None) -> None:
    if groups is None:
        return
    if type(groups) is not int or groups < 1:
        raise InputError(f"an energy has 1 group of positions or more, not {groups}.")


def _named(name: str, groups: int | None) -> str:
    return name if groups is None else f"{name}(groups={groups})"
