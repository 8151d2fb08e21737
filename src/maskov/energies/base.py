"""Energies of whole sequences, and how they combine.

The sign convention, stated once: a low energy is a probable sequence, p(x) ∝ exp(−E(x)/T). Energies
add and scale, so `Raw() + 0.5 * Norm()` is an energy too.

An energy has a name that `parse_energy` reads, a cache and stages. The cache of an energy over
masked passes is those passes; that of any other energy is one number per sequence. Its stages are
energies by which a proposal is tested, cheapest first (see `maskov.energies.stages`).

A part belongs to a sum by its place. Names are for people: two parts may have the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from maskov.errors import InputError, MaskovError, TooLongError, refuse
from maskov.models.base import MaskedModel
from maskov.models.scorer import is_out_of_memory
from maskov.parts import is_built_in, part_text
from maskov.types import Batch, Float, Int, Sequences, Tensor

# What may stand for an energy: numbers for texts.
TextFunction = Callable[[list[str]], Sequence[float]]
# The energies that every run keeps by name.
_RESERVED = ("raw", "norm", "target")


class Energy(ABC):
    """A function of sequences.

    `cost` is about how many masked passes one evaluation costs: cheap energies are tested first.
    """

    cost: float = 1.0
    # Whether it reads the text that a chain started from.
    compares: bool = False

    @abstractmethod
    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return the energy of each sequence, in float64."""

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the contribution of each position; they add up to the energy."""
        raise InputError(f"the energy '{self}' has no terms for positions.")

    def __str__(self) -> str:
        """Return what `parse_energy` reads: of a custom part, its import path."""
        return part_text(self)

    def stages(self) -> tuple[Energy, ...]:
        """Return the energies by which proposals are tested in turn; the last is this one."""
        return (self,)

    def models(self) -> dict[str, str]:
        """Return the fingerprint of each model the energy has besides the masked one."""
        return {}

    @property
    def parts(self) -> tuple[tuple[float, Energy], ...]:
        """The energies that this one is a weighted sum of."""
        return ((1.0, self),)

    @property
    def masked(self) -> Energy | None:
        """The part that is a sum over masked passes, if there is one."""
        found = tuple((w, part) for w, part in self.parts if isinstance(part, MaskedEnergy))
        if len(found) == len(self.parts):
            return self
        return Sum(found) if found else None

    @property
    def others(self) -> tuple[tuple[float, Energy], ...]:
        """The parts that are not sums over masked passes."""
        return tuple((w, part) for w, part in self.parts if not isinstance(part, MaskedEnergy))

    @property
    def needs_passes(self) -> bool:
        """Whether the masked passes of the sequences are needed."""
        return self.masked is not None

    @property
    def groups(self) -> int | None:
        """In how many groups of positions its masked passes mask; None: each position alone."""
        masked = (part.groups for _, part in self.parts if isinstance(part, MaskedEnergy))
        return next(masked, None)

    @property
    def needs_normaliser(self) -> bool:
        """Whether the log-sum-exp of the masked passes is needed."""
        return any(isinstance(p, MaskedEnergy) and p.normalised for _, p in self.parts)

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return the term of each masked pass; only for sums over masked passes."""
        raise InputError(f"the energy '{self}' is not a sum over masked passes.")

    def total(self, values: Float[Tensor, "n parts"]) -> Float[Tensor, " n"]:
        """Add up the values of the parts, the first columns in the order of `parts`."""
        columns = [weight * values[:, column] for column, (weight, _) in enumerate(self.parts)]
        return torch.stack(columns).sum(0)

    def leads(self, other: Energy) -> bool:
        """Whether its parts are the first of another's, whose values then give that of this one."""
        pairs = zip(self.parts, other.parts, strict=False)
        return len(self.parts) <= len(other.parts) and all(a.is_part(b) for (_, a), (_, b) in pairs)

    def has_parts_of(self, other: Energy) -> bool:
        """Whether both are sums of the same parts, whatever the weights."""
        return len(self.parts) == len(other.parts) and self.leads(other)

    def same_as(self, other: Energy | None) -> bool:
        """Whether both are one function: the same parts with the same weights."""
        return (
            other is not None
            and self.has_parts_of(other)
            and [weight for weight, _ in self.parts] == [weight for weight, _ in other.parts]
        )

    def is_part(self, other: Energy) -> bool:
        """Whether two parts are one: the same object, or built-in ones with the same arguments."""
        # The text of a built-in energy has all its arguments.
        return self is other or (
            is_built_in(self) and type(self) is type(other) and str(self) == str(other)
        )

    def __add__(self, other: Energy | TextFunction) -> Energy:
        """Add an energy, or a function of texts, as on the command line."""
        return Sum((*self.parts, *_energy(other).parts)) if callable(other) else NotImplemented

    def __radd__(self, other: TextFunction | int) -> Energy:
        """Add this energy to a function of texts; `sum` begins with 0."""
        if other == 0:
            return self
        return _energy(other) + self if callable(other) else NotImplemented

    def __mul__(self, factor: float) -> Energy:
        return Sum(tuple((factor * weight, part) for weight, part in self.parts))

    __rmul__ = __mul__


def _energy(part: Energy | TextFunction) -> Energy:
    return part if isinstance(part, Energy) else TextEnergy(part)


@dataclass(frozen=True)
class MaskedEnergy(Energy):
    """An energy that is a sum of what the masked passes of the sequence say of each position.

    The pass of a position masks it alone, or with `groups` every position of its group: position t
    is in group t mod `groups`. That is another energy, of fewer passes.
    """

    groups: int | None = None

    # Whether the terms need the log-sum-exp of the scores.
    normalised: ClassVar[bool]

    def __post_init__(self) -> None:
        refuse(
            (
                self.groups is not None and (type(self.groups) is not int or self.groups < 1),
                f"an energy has 1 group of positions or more, not {self.groups}.",
            ),
        )

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the term of each position, zero at padding."""
        if sequences.pass_cache is None or sequences.pass_cache.groups != self.groups:
            raise InputError(f"the energy '{self}' needs the masked passes of its sequences.")
        terms = self.of_scores(sequences.pass_cache.logit, sequences.pass_cache.log_normaliser)
        return torch.where(sequences.inside, terms, 0.0)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Sum the terms in float64."""
        return self.terms(model, sequences).sum(1)


@dataclass(frozen=True)
class Raw(MaskedEnergy):
    """E_raw(x) = −Σ_t logit_t(x_t | x without t).

    It is defined up to a shift of the logits in each context, so its values are not comparable
    between checkpoints.
    """

    normalised = False

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the logit."""
        return -logit


@dataclass(frozen=True)
class Norm(MaskedEnergy):
    """E_norm(x) = −Σ_t log softmax_t(x_t | x without t), minus the pseudo-log-likelihood.

    The softmax is the model's own, over its full vocabulary.
    """

    normalised = True

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the log-softmax."""
        return log_normaliser - logit


def grouped(energy: Energy, groups: int) -> Energy | None:
    """Return an energy with its masked passes in groups of positions; None if it has none, or is.

    It is another target, which chains reach sooner.
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


@dataclass(frozen=True)
class Evaluation(Batch):
    """The value of an energy, what it remembers of each sequence, and the passes that it took."""

    value: Float[Tensor, " n"]
    cells: Float[Tensor, "n cells"]
    passes: Int[Tensor, " n"]


@dataclass(frozen=True)
class Sum(Energy):
    """A weighted sum of energies."""

    weighted: tuple[tuple[float, Energy], ...]

    def __post_init__(self) -> None:
        refuse(
            (
                not all(math.isfinite(weight) for weight, _ in self.weighted),
                "the weights of a sum of energies must be finite numbers.",
            ),
        )
        masked = {part.groups: part for _, part in self.parts if isinstance(part, MaskedEnergy)}
        object.__setattr__(self, "compares", any(part.compares for _, part in self.parts))
        if len(masked) > 1:
            one, other = list(masked.values())[:2]
            raise InputError(
                f"'{one}' and '{other}' mask different groups of positions, so they share no "
                "passes and cannot be in one sum: give both the same groups."
            )

    @property
    def parts(self) -> tuple[tuple[float, Energy], ...]:
        """The weighted energies."""
        return self.weighted

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Add the terms of the parts up."""
        return torch.stack(
            [w * part.of_scores(logit, log_normaliser) for w, part in self.parts]
        ).sum(0)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Add the parts up."""
        return self.total(torch.stack([part(model, sequences) for _, part in self.parts], dim=1))

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Add the parts up, position by position."""
        return torch.stack([w * part.terms(model, sequences) for w, part in self.parts]).sum(0)

    def models(self) -> dict[str, str]:
        """Gather the models of all parts."""
        return {key: value for _, part in self.parts for key, value in part.models().items()}

    def __str__(self) -> str:
        return "+".join(weighted(weight, str(part)) for weight, part in self.parts)


def evaluated(
    energy: Energy, model: MaskedModel, sequences: Sequences, too_long: float | None = None
) -> Float[Tensor, " n"]:
    """Return an energy's values; one that fails, or gives no number, is refused in a sentence.

    So is a text longer than its model reads, unless such a text has the value `too_long`.
    """
    try:
        values = energy(model, sequences)
    except TooLongError as error:
        if too_long is None or len(error.fits) != len(sequences.lengths):
            raise
        fits = torch.tensor(error.fits, device=sequences.lengths.device)
        found = torch.where(fits, 0.0, too_long).double()
        rows = fits.nonzero().flatten()
        if rows.numel():
            found[rows] = evaluated(energy, model, sequences.rows(rows)).to(found.device)
        return found
    except Exception as error:
        if isinstance(error, MaskovError) or is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        raise InputError(f"the energy '{energy}' failed ({reason[:200].rstrip(': ')}).") from error
    count = len(sequences.lengths)
    if not isinstance(values, Tensor) or values.shape != (count,):
        raise InputError(
            f"the energy '{energy}' must return one number for each of {count} sequences, not "
            f"{type(values).__name__} of shape {tuple(getattr(values, 'shape', ()))}."
        )
    if bool(values.isnan().any()):
        raise InputError(f"the energy '{energy}' is not a number (NaN) for some sequence.")
    return values.double()


def contents(sequences: Sequences) -> list[list[int]]:
    """Return each sequence without its padding."""
    rows, sizes = sequences.tokens.tolist(), sequences.lengths.tolist()
    return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def distinct_names(parts: Iterable[Energy]) -> tuple[str, ...]:
    """Return a name to show for each part; equal ones, and those that runs use, get a number."""
    found: list[str] = []
    for part in parts:
        name, count = str(part), 1
        while (shown := name if count == 1 else f"{name} ({count})") in (*_RESERVED, *found):
            count += 1
        found.append(shown)
    return tuple(found)


def weighted(weight: float, part: str) -> str:
    """Write a part with its weight, which is read back to the bit."""
    return part if weight == 1 else f"{repr(float(weight)).removesuffix('.0')}*{part}"


@dataclass(frozen=True)
class TextEnergy(Energy):
    """The energy that a function gives to the decoded text of a sequence.

    It is asked before any masked pass unless the function has its own `cost`, in masked
    passes.
    """

    function: Callable[[list[str]], Sequence[float]]

    @property
    def cost(self) -> float:  # type: ignore[override]
        """What the function says of itself, or nearly nothing."""
        return float(getattr(self.function, "cost", 0.0))

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Decode the sequences and ask the function."""
        texts = [model.decode(ids) for ids in contents(sequences)]
        numbers = [float(number) for number in self.function(texts)]
        if len(numbers) != len(texts):
            raise InputError(
                f"the energy '{self}' must return one number for each text; it returned "
                f"{len(numbers)} for {len(texts)}."
            )
        return torch.tensor(numbers, dtype=torch.float64, device=sequences.tokens.device)

    def is_part(self, other: Energy) -> bool:
        """Whether both ask the same function; what equality means to it is not known here."""
        return isinstance(other, TextEnergy) and self.function is other.function

    def __str__(self) -> str:
        return part_text(self.function)
