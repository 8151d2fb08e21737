"""Energies that count: tokens, changes since the start, and faults of words.

*Lengths.* Energies of sequences of different lengths are not on one scale: a token more adds its
term to E. With a weight w(n) for each length n the target is p(x) ∝ w(|x|) exp(−E(x)/T). Models
that translate predict lengths themselves. A kernel divides its whole energy by T. So that w(n) is
not, a length prior has the weight T in the sum, and `at_temperature` changes that weight whenever T
changes.

*Changes* tell how far a text is from the one that its chain started from.

*Faults* of words, which occur, which do not, which repeat, and what a pattern finds, are 0 for a
text that is as it should be; a weight says what a fault costs.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import re2
import torch
from torch.nn.utils.rnn import pad_sequence

from maskov.constraints.kinds import next_row
from maskov.energies.base import Energy, Sum, contents
from maskov.energies.networks import references
from maskov.errors import InputError, refuse
from maskov.models.base import MaskedModel
from maskov.models.conditional import ConditionalModel
from maskov.parts import written
from maskov.types import Float, Int, Sequences, Tensor

# Far longer than anybody writes; a manifest may be anybody's.
_LONGEST_PATTERN = 1000


@dataclass(frozen=True)
class LengthPrior(Energy):
    """−log w(n), where `log_weights` begin at the length `first`; other lengths are impossible."""

    first: int
    log_weights: tuple[float, ...]

    cost = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_weights", tuple(map(float, self.log_weights)))
        refuse(
            (
                self.first < 1
                or not self.log_weights
                or not all(map(math.isfinite, self.log_weights)),
                "a length prior has a finite log-weight for each length from 1.",
            ),
        )

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Look the weights up."""
        weights = torch.tensor(
            self.log_weights, dtype=torch.float64, device=sequences.lengths.device
        )
        place = sequences.lengths - self.first
        inside = (place >= 0) & (place < len(weights))
        return torch.where(inside, -weights[place.clamp(0, len(weights) - 1)], torch.inf)


@dataclass(frozen=True)
class Length(Energy):
    """(n − mean)² / 2 sd², for texts of about `mean` tokens."""

    mean: float
    sd: float = 2.0

    cost = 0.0

    def __post_init__(self) -> None:
        refuse(
            (
                not all(
                    type(one) in (int, float) and 0 < one < math.inf for one in (self.mean, self.sd)
                ),
                "length takes numbers above 0, as in length(12, sd=2).",
            ),
        )

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare the lengths."""
        return (sequences.lengths.double() - self.mean) ** 2 / (2 * self.sd**2)


@dataclass(frozen=True)
class PredictedLength(Energy):
    """−log p(n | source), by the length predictor of a model that translates."""

    cost = 0.0

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Look the prediction up."""
        if not isinstance(model, ConditionalModel):
            raise InputError(no_length_predictor(model))
        if model.sources is None or sequences.source is None:
            raise InputError(f"'{model.name}' predicts the lengths of its sources: give some.")
        scores = model.length_scores(sequences.source)
        longest = scores.shape[1] - 1
        found = scores.gather(1, sequences.lengths.clamp(max=longest)[:, None])[:, 0]
        return torch.where(sequences.lengths <= longest, -found, torch.inf)


def at_temperature(energy: Energy, change: float) -> Energy:
    """Return the energy of a target whose T is `change` times as high: w(n) stays as it is."""
    if change == 1 or not any(isinstance(part, LengthPrior) for _, part in energy.parts):
        return energy
    return Sum(tuple((w * change if isinstance(p, LengthPrior) else w, p) for w, p in energy.parts))


def no_length_predictor(model: MaskedModel) -> str:
    """Return why a model is refused that predicts no lengths."""
    return (
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
    refuse(
        (
            not weights,
            f"the length prior '{given}' is not valid: use none, flat, or weights such as "
            "8:1,12:4,16:1.",
        ),
        (
            any(not (0 < weight < math.inf) for weight in weights.values()),
            "the weights of lengths must be above 0.",
        ),
    )
    known = sorted(weights)
    table = []
    for length in range(known[0], known[-1] + 1):
        low = max(one for one in known if one <= length)
        high = min(one for one in known if one >= length)
        share = 0.0 if low == high else (length - low) / (high - low)
        table.append((1 - share) * math.log(weights[low]) + share * math.log(weights[high]))
    return LengthPrior(known[0], tuple(table))


@dataclass(frozen=True)
class Distance(Energy):
    """A number of changes, counted in tokens or words."""

    unit: Literal["tokens", "words"] = "tokens"

    cost = 0.0
    compares = True

    def __post_init__(self) -> None:
        refuse(
            (
                self.unit not in ("tokens", "words"),
                f"changes are counted in tokens or words, not in '{self.unit}'.",
            ),
        )

    def _pairs(self, model: MaskedModel, sequences: Sequences) -> tuple[Sequences, Sequences]:
        """Return the sequences and what they are compared with, both in the unit that counts."""
        start = references(sequences, self)
        if self.unit == "tokens":
            return sequences, start
        texts = [[model.decode(ids) for ids in contents(of)] for of in (sequences, start)]
        one, other = _numbered(*texts)
        return one.to(sequences.tokens.device), other.to(sequences.tokens.device)


@dataclass(frozen=True)
class Hamming(Distance):
    """The positions at which a text differs from the start, and those by which it is longer."""

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare position by position."""
        one, other = self._pairs(model, sequences)
        width = min(one.tokens.shape[1], other.tokens.shape[1])
        both = one.inside[:, :width] & other.inside[:, :width]
        differs = (one.tokens[:, :width] != other.tokens[:, :width]) & both
        return (differs.sum(1) + (one.lengths - other.lengths).abs()).double()


@dataclass(frozen=True)
class Edit(Distance):
    """The fewest insertions, deletions and replacements between a text and the start."""

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare by Levenshtein's distance."""
        return edit_distance(*self._pairs(model, sequences)).double()


def edit_distance(one: Sequences, other: Sequences) -> Int[Tensor, " n"]:
    """Return Levenshtein's distance of each pair of sequences."""
    count, width = other.tokens.shape
    place = torch.arange(width + 1, device=other.tokens.device)
    row = place.expand(count, -1)
    for index in range(one.tokens.shape[1]):
        differs = (one.tokens[:, index, None] != other.tokens).long()
        row = torch.where((index < one.lengths)[:, None], next_row(row, differs, place), row)
    return row.gather(1, other.lengths[:, None]).squeeze(1)


def words_changed(one: str, other: str) -> int:
    """Return the words that were inserted, deleted or replaced between two texts."""
    return int(edit_distance(*_numbered([one], [other])))


def _numbered(one: list[str], other: list[str]) -> tuple[Sequences, Sequences]:
    """Return the words of texts as sequences, in which each word has its number."""
    numbers: dict[str, int] = {}

    def numbered(texts: list[str]) -> Sequences:
        lines = [[numbers.setdefault(word, len(numbers)) for word in t.split()] for t in texts]
        rows = [torch.tensor(line, dtype=torch.long) for line in lines]
        return Sequences(pad_sequence(rows, batch_first=True), torch.tensor(list(map(len, rows))))

    return numbered(one), numbered(other)


def whole_word(word: str) -> re.Pattern[str]:
    """Return what finds a word or phrase, whole and in any case."""
    return re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", re.IGNORECASE)


@lru_cache
def compiled(pattern: str) -> Any:
    """Return a regular expression, or refuse it.

    RE2 searches in time linear in the text, for every pattern; Python's `re` may never end.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise InputError(f"a regular expression has at most {_LONGEST_PATTERN} characters.")
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0]
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else "not Unicode"
        raise InputError(
            f"'{pattern}' is not a regular expression of RE2 ({reason}); "
            "there is no lookaround and no backreference."
        ) from error


class Faults(Energy):
    """A number of faults in the decoded text."""

    cost = 0.0

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Decode the sequences and count, equal ones once."""
        rows = [tuple(ids) for ids in contents(sequences)]
        found = {ids: self.count(model.decode(list(ids))) for ids in dict.fromkeys(rows)}
        return torch.tensor(
            [float(found[ids]) for ids in rows],
            dtype=torch.float64,
            device=sequences.tokens.device,
        )

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the faults of a text."""


@dataclass(frozen=True, init=False)
class _Words(Faults):
    """Faults by a list of words or phrases, found whole and in any case."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        name = type(self).__name__.lower()
        refuse(
            (
                not words or not all(isinstance(word, str) and word.strip() for word in words),
                f"{name} takes words in quotes, as in {name}('river').",
            )
        )
        object.__setattr__(self, "words", words)

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return list(map(whole_word, self.words))

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({', '.join(map(written, self.words))})"


class Contains(_Words):
    """How many of some words a text lacks."""

    def count(self, text: str) -> int:
        """Count the words that are missing."""
        return sum(pattern.search(text) is None for pattern in self._patterns)


class Avoids(_Words):
    """How often any of some words occurs in a text."""

    def count(self, text: str) -> int:
        """Count the words that are there."""
        return sum(len(pattern.findall(text)) for pattern in self._patterns)


@dataclass(frozen=True)
class Matches(Faults):
    """1 for a text in which a regular expression finds nothing, 0 for others."""

    pattern: str

    def __post_init__(self) -> None:
        refuse(
            (
                not isinstance(self.pattern, str),
                "matches takes a regular expression in quotes, as in matches('^the').",
            ),
        )
        compiled(self.pattern)

    def count(self, text: str) -> int:
        """Search the text."""
        # As bytes, since RE2 reads UTF-8, which lacks lone surrogates.
        return int(compiled(self.pattern).search(text.encode(errors="surrogatepass")) is None)


@dataclass(frozen=True)
class Repeats(Faults):
    """How many words of a text are the same as one of the `within` words before them."""

    within: int = 4

    def __post_init__(self) -> None:
        refuse(
            (
                type(self.within) is not int or self.within < 1,
                f"repeats counts within 1 word or more, not {self.within}.",
            ),
        )

    def count(self, text: str) -> int:
        """Count the words that repeat."""
        words = [word for word in text.lower().split() if any(map(str.isalnum, word))]
        return sum(
            word in words[max(0, place - self.within) : place] for place, word in enumerate(words)
        )
