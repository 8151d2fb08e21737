"""What makes sequences of one length more probable than those of another.

Energies of sequences of different lengths are not on one scale: a token more adds its term to E.
With a weight w(n) for each length n the target is p(x) ∝ w(|x|) exp(−E(x)/T). Models that translate
predict lengths themselves.

A kernel divides its whole energy by T. So that w(n) is not, a length prior has the weight T in the
sum, and `at_temperature` changes that weight whenever T changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from maskov.energies.base import Energy, Sum
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.models.conditional.model import ConditionalModel
from maskov.types import Float, Sequences, Tensor


@dataclass(frozen=True)
class LengthPrior(Energy):
    """−log w(n), where `log_weights` begin at the length `first`; other lengths are impossible."""

    first: int
    log_weights: tuple[float, ...]

    cost = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_weights", tuple(map(float, self.log_weights)))
        if self.first < 1 or not self.log_weights or not all(map(math.isfinite, self.log_weights)):
            raise InputError("a length prior has a finite log-weight for each length from 1.")

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Look the weights up."""
        weights = torch.tensor(
            self.log_weights, dtype=torch.float64, device=sequences.lengths.device
        )
        place = sequences.lengths - self.first
        inside = (place >= 0) & (place < len(weights))
        return torch.where(inside, -weights[place.clamp(0, len(weights) - 1)], torch.inf)

    def __str__(self) -> str:
        weights = ",".join(map(repr, self.log_weights))
        return f"length_prior({self.first},[{weights}])"


@dataclass(frozen=True)
class Length(Energy):
    """(n − mean)² / 2 sd², for texts of about `mean` tokens."""

    mean: float
    sd: float = 2.0

    cost = 0.0

    def __post_init__(self) -> None:
        numbers = (self.mean, self.sd)
        if not all(type(one) in (int, float) and 0 < one < math.inf for one in numbers):
            raise InputError("length takes numbers above 0, as in length(12, sd=2).")

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare the lengths."""
        return (sequences.lengths.double() - self.mean) ** 2 / (2 * self.sd**2)

    def __str__(self) -> str:
        return f"length({self.mean!r}, sd={self.sd!r})"


@dataclass(frozen=True)
class PredictedLength(Energy):
    """−log p(n | source), by the length predictor of a model that translates."""

    cost = 0.0

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Look the prediction up."""
        if not isinstance(model, ConditionalModel):
            raise no_length_predictor(model)
        if model.sources is None or sequences.source is None:
            raise InputError(f"'{model.name}' predicts the lengths of its sources: give some.")
        scores = model.length_scores(sequences.source)
        longest = scores.shape[1] - 1
        found = scores.gather(1, sequences.lengths.clamp(max=longest)[:, None])[:, 0]
        return torch.where(sequences.lengths <= longest, -found, torch.inf)

    def __str__(self) -> str:
        return "predicted_length"


def at_temperature(energy: Energy, change: float) -> Energy:
    """Return the energy of a target whose T is `change` times as high: w(n) stays as it is."""
    if change == 1 or not any(isinstance(part, LengthPrior) for _, part in energy.parts):
        return energy
    parts = ((w * change if isinstance(p, LengthPrior) else w, p) for w, p in energy.parts)
    return Sum(tuple(parts))


def no_length_predictor(model: MaskedModel) -> InputError:
    """Return the refusal of a model that predicts no lengths."""
    return InputError(
        f"'{model.name}' has no length predictor, which the energy 'predicted_length' needs: use a "
        "translation model, or length(12, sd=2)."
    )


def parse_table(given: str | Mapping[int, float]) -> LengthPrior:
    """Read weights of lengths such as `8:1,9:2,10:1`; those in between are interpolated."""
    try:
        pairs = (
            [entry.split(":") for entry in given.split(",")]
            if isinstance(given, str)
            else given.items()
        )
        weights = {int(key): float(weight) for key, weight in pairs}
    except (TypeError, ValueError):
        weights = {}
    if not weights:
        raise InputError(
            f"the length prior '{given}' is not valid: use none, flat, or weights such as "
            "8:1,12:4,16:1."
        )
    if any(not (0 < weight < math.inf) for weight in weights.values()):
        raise InputError("the weights of lengths must be above 0.")
    known = sorted(weights)
    table = []
    for length in range(known[0], known[-1] + 1):
        low = max(one for one in known if one <= length)
        high = min(one for one in known if one >= length)
        share = 0.0 if low == high else (length - low) / (high - low)
        table.append((1 - share) * math.log(weights[low]) + share * math.log(weights[high]))
    return LengthPrior(known[0], tuple(table))
