"""Energies of whole sequences, and how they combine.

The sign convention, stated once: a low energy is a probable sequence, p(x) ∝ exp(−E(x)/T). Energies
add and scale, so `Raw() + 0.5 * Norm()` is an energy too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Float, Sequences, Tensor


class Energy(ABC):
    """A function of sequences; says what it needs from the model's masked passes."""

    # Whether the masked passes of the sequence are needed, and their log-sum-exp too.
    needs_sites: bool
    needs_normaliser: bool
    # Whether the energy is a sum of one term for each masked pass, and of nothing else.
    sums_over_sites: bool = False

    @abstractmethod
    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return the energy of each sequence, in float64."""

    @abstractmethod
    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the contribution of each position; they add up to the energy."""

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return the term of each masked pass, where the energy is a sum of such terms."""
        raise InputError(f"the energy '{self}' is no sum over masked passes.")

    @abstractmethod
    def __str__(self) -> str:
        """Return the name that `parse_energy` reads."""

    def models(self) -> dict[str, str]:
        """Return the fingerprint of each model the energy has beside the masked one."""
        return {}

    def __add__(self, other: Energy) -> Energy:
        return Combined((*_parts(self), *_parts(other)))

    def __mul__(self, factor: float) -> Energy:
        return Combined(tuple((factor * weight, part) for weight, part in _parts(self)))

    __rmul__ = __mul__


@dataclass(frozen=True)
class Combined(Energy):
    """A weighted sum of energies."""

    parts: tuple[tuple[float, Energy], ...]

    def __post_init__(self) -> None:
        if not all(torch.isfinite(torch.tensor(weight)) for weight, _ in self.parts):
            raise InputError("the weights of a sum of energies must be finite numbers.")

    @property
    def needs_sites(self) -> bool:  # type: ignore[override]
        """True if any part needs the masked passes."""
        return any(part.needs_sites for _, part in self.parts)

    @property
    def needs_normaliser(self) -> bool:  # type: ignore[override]
        """True if any part needs the log-sum-exp."""
        return any(part.needs_normaliser for _, part in self.parts)

    @property
    def sums_over_sites(self) -> bool:  # type: ignore[override]
        """True if every part is such a sum."""
        return all(part.sums_over_sites for _, part in self.parts)

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Add the terms of the parts up."""
        terms = [weight * part.of_scores(logit, log_normaliser) for weight, part in self.parts]
        return torch.stack(terms).sum(0)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Add the parts up."""
        energies = [weight * part(model, sequences) for weight, part in self.parts]
        return torch.stack(energies).sum(0)

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Add the parts up, position by position."""
        terms = [weight * part.terms(model, sequences) for weight, part in self.parts]
        return torch.stack(terms).sum(0)

    def models(self) -> dict[str, str]:
        """Gather the models of all parts."""
        return {key: value for _, part in self.parts for key, value in part.models().items()}

    def __str__(self) -> str:
        return "+".join(
            str(part) if weight == 1 else f"{_exact(weight)}*{part}" for weight, part in self.parts
        )


def _exact(weight: float) -> str:
    """Write a weight so that it is read back to the bit."""
    return repr(float(weight)).removesuffix(".0")


def _parts(energy: Energy) -> tuple[tuple[float, Energy], ...]:
    return energy.parts if isinstance(energy, Combined) else ((1.0, energy),)
