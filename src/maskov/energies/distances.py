"""Energies that count changes: how far a text is from the one that its chain started from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from maskov.energies.base import Energy
from maskov.energies.networks import contents, references
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Float, Int, Sequences, Tensor

UNITS = ("tokens", "words")


@dataclass(frozen=True)
class Distance(Energy):
    """A number of changes, counted in tokens or words."""

    unit: Literal["tokens", "words"] = "tokens"

    cost = 0.0
    compares = True

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"changes are counted in tokens or words, not in '{self.unit}'.")

    def _pairs(self, model: MaskedModel, sequences: Sequences) -> tuple[Sequences, Sequences]:
        """Return the sequences and what they are compared with, both in the unit that counts."""
        start = references(sequences, self)
        if self.unit == "tokens":
            return sequences, start
        numbers: dict[str, int] = {}

        def numbered(of: Sequences) -> Sequences:
            words = [model.decode(ids).split() for ids in contents(of)]
            rows = [[numbers.setdefault(word, len(numbers)) for word in line] for line in words]
            return _padded(rows, of.tokens.device)

        return numbered(sequences), numbered(start)

    def _named(self, name: str) -> str:
        return name if self.unit == "tokens" else f"{name}(unit={self.unit})"


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

    def __str__(self) -> str:
        return self._named("hamming")


@dataclass(frozen=True)
class Edit(Distance):
    """The fewest insertions, deletions and replacements between a text and the start."""

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare by Levenshtein's distance."""
        return edit_distance(*self._pairs(model, sequences)).double()

    def __str__(self) -> str:
        return self._named("edit")


def edit_distance(one: Sequences, other: Sequences) -> Int[Tensor, " n"]:
    """Return Levenshtein's distance of each pair of sequences.

    A row of the table is computed at once: with a[j] the least cost without an insertion at the
    end, row[j] is the least a[k] + j − k over all k ≤ j, a running minimum.
    """
    count, width = other.tokens.shape
    place = torch.arange(width + 1, device=other.tokens.device)
    row = place.expand(count, -1)
    for index in range(one.tokens.shape[1]):
        differs = (one.tokens[:, index, None] != other.tokens).long()
        best = torch.cat([row[:, :1] + 1, torch.minimum(row[:, 1:] + 1, row[:, :-1] + differs)], 1)
        after = (best - place).cummin(1).values + place
        row = torch.where((index < one.lengths)[:, None], after, row)
    return row.gather(1, other.lengths[:, None]).squeeze(1)


def words_changed(one: str, other: str) -> int:
    """Return the words that were inserted, deleted or replaced between two texts."""
    numbers: dict[str, int] = {}
    rows = [
        [numbers.setdefault(word, len(numbers)) for word in text.split()] for text in (one, other)
    ]
    cpu = torch.device("cpu")
    return int(edit_distance(_padded(rows[:1], cpu), _padded(rows[1:], cpu)))


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> Sequences:
    """Return sequences of mixed lengths, padded on the right."""
    tokens = torch.zeros((len(rows), max(map(len, rows), default=0)), dtype=torch.long)
    for line, row in enumerate(rows):
        tokens[line, : len(row)] = torch.tensor(row, dtype=torch.long)
    return Sequences(tokens.to(device), torch.tensor([len(row) for row in rows], device=device))
