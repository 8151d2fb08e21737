"""Energies of words: which occur, which do not, which repeat, and what a pattern finds.

Each is a number of faults, 0 for a text that is as it should be; a weight says what a fault costs.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import re2
import torch

from maskov.energies.base import Energy
from maskov.energies.networks import contents
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.parts import quoted, written
from maskov.types import Float, Sequences, Tensor

# Far longer than anybody writes; a manifest may be anybody's.
_LONGEST_PATTERN = 1000


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
        numbers = [float(found[ids]) for ids in rows]
        return torch.tensor(numbers, dtype=torch.float64, device=sequences.tokens.device)

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the faults of a text."""


class _Words(Faults):
    """Faults by a list of words or phrases, found whole and in any case."""

    name: str

    def __init__(self, *words: str) -> None:
        if not words or not all(isinstance(word, str) and word.strip() for word in words):
            raise InputError(f"{self.name} takes words in quotes, as in {self.name}('river').")
        self.words = words

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return list(map(whole_word, self.words))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(written, self.words))})"


class Contains(_Words):
    """How many of some words a text lacks."""

    name = "contains"

    def count(self, text: str) -> int:
        """Count the words that are missing."""
        return sum(pattern.search(text) is None for pattern in self._patterns)


class Avoids(_Words):
    """How often any of some words occurs in a text."""

    name = "avoids"

    def count(self, text: str) -> int:
        """Count the words that are there."""
        return sum(len(pattern.findall(text)) for pattern in self._patterns)


@dataclass(frozen=True)
class Matches(Faults):
    """1 for a text in which a regular expression finds nothing, 0 for others."""

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise InputError("matches takes a regular expression in quotes, as in matches('^the').")
        compiled(self.pattern)

    def count(self, text: str) -> int:
        """Search the text."""
        # As bytes, since RE2 reads UTF-8, which lacks lone surrogates.
        return int(compiled(self.pattern).search(text.encode(errors="surrogatepass")) is None)

    def __str__(self) -> str:
        return f"matches({quoted(self.pattern)})"


@dataclass(frozen=True)
class Repeats(Faults):
    """How many words of a text are the same as one of the `within` words before them."""

    within: int = 4

    def __post_init__(self) -> None:
        if type(self.within) is not int or self.within < 1:
            raise InputError(f"repeats counts within 1 word or more, not {self.within}.")

    def count(self, text: str) -> int:
        """Count the words that repeat."""
        words = [word for word in text.lower().split() if any(map(str.isalnum, word))]
        return sum(
            word in words[max(0, place - self.within) : place] for place, word in enumerate(words)
        )

    def __str__(self) -> str:
        return "repeats" if self.within == 4 else f"repeats(within={self.within})"
