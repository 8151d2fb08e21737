"""The constraint that chains stay close to the text that they start from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.constraints.base import UNFILLED, Constraint, PartlyFilled
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Bool, Int, Tensor

_FAR = 2**20


@dataclass(frozen=True)
class _Closeness(Constraint):
    """What both distances share."""

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 0:
            raise InputError(f"the changes are limited to 0 or more, not {self.count}.")

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse chains that start from no text."""
        if not sequences.reference.shape[1]:
            raise InputError(
                "a limit on changes counts those to the text that a chain starts from: give one "
                "with --start-text, or drop --max-changes."
            )

    def _only(
        self, allowed: Bool[Tensor, "n reference"], sequences: PartlyFilled, model: MaskedModel
    ) -> Bool[Tensor, "n vocabulary"]:
        """Return the chosen tokens of the references as choices of the vocabulary."""
        size = model.vocabulary_size
        # What is not chosen goes to one column too many.
        column = torch.where(allowed, sequences.reference, size)
        table = torch.zeros((len(column), size + 1), dtype=torch.bool, device=column.device)
        return table.scatter(1, column, True)[:, :size]


@dataclass(frozen=True)
class MaxChanges(_Closeness):
    """At most `count` tokens differ from those of the text; the length is that of the text."""

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Leave only the text's own token where no other change is left."""
        left = self._changes(sequences) < self.count
        place = torch.arange(sequences.reference.shape[1], device=left.device)
        here = (place == sequences.place[:, None]) & (sequences.reference >= 0)
        return self._only(here, sequences, model) | left[:, None]

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether the known tokens differ in few places."""
        as_long = (sequences.reference >= 0).sum(1) == sequences.lengths
        return (self._changes(sequences) <= self.count) & as_long

    @property
    def violation(self) -> str:
        """It is another text."""
        return f"differs from its text in more than {self.count} tokens"

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse changing lengths."""
        super().check(model, sequences, resizable)
        if resizable:
            raise InputError(
                "MaxChanges counts positions, which moves that change the length shift: use "
                "MaxEdits."
            )

    def _changes(self, sequences: PartlyFilled) -> Int[Tensor, " n"]:
        known, reference = sequences.known, sequences.reference
        width = max(known.shape[1] - reference.shape[1], 0)
        reference = torch.nn.functional.pad(reference, (0, width), value=-1)[:, : known.shape[1]]
        return ((known >= 0) & (known != reference)).sum(1)

    def __str__(self) -> str:
        return f"max-changes({self.count})"


@dataclass(frozen=True)
class MaxEdits(_Closeness):
    """At most `count` tokens are inserted, deleted or replaced to get from the text to a sequence.

    An unfilled place may hold the token that the text has there.
    """

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Compare the distances of what stands before the place and of what stands after it."""
        row = torch.arange(len(sequences.place), device=sequences.place.device)
        before = self._before(sequences)[row, sequences.place]
        after = self._after(sequences)[row, sequences.place + 1]
        # A token that the text does not have: it replaces one of the text, or is inserted.
        kept = before[:, :-1] + after[:, 1:]
        other = torch.cat([kept + 1, before + after + 1], dim=1).amin(1)
        here = (kept <= self.count) & (sequences.reference >= 0)
        return self._only(here, sequences, model) | (other <= self.count)[:, None]

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether the distance can be small enough."""
        return self._after(sequences)[:, 0, 0] <= self.count

    @property
    def violation(self) -> str:
        """It is another text."""
        return f"is more than {self.count} edits away from its text"

    def _before(self, sequences: PartlyFilled) -> Int[Tensor, "n places reference"]:
        """Return the distance of the first i tokens from the first j of the text."""
        reference, column = sequences.reference, self._columns(sequences)
        rows = [column.expand(len(reference), -1)]
        for place in range(sequences.tokens.shape[1]):
            cost = _cost(sequences.known[:, place], reference)
            rows.append(_next_row(rows[-1], cost, column))
        return torch.stack(rows, dim=1)

    def _after(self, sequences: PartlyFilled) -> Int[Tensor, "n places reference"]:
        """Return the distance of the tokens from i on to those of the text from j on."""
        reference, column = sequences.reference, self._columns(sequences)
        left = (reference >= 0).sum(1, keepdim=True) - column
        rows = [torch.where(left < 0, _FAR, left)]
        for place in reversed(range(sequences.tokens.shape[1])):
            cost = _cost(sequences.known[:, place], reference).flip(1)
            row = _next_row(rows[-1].flip(1), cost, column).flip(1)
            ended = (place >= sequences.lengths)[:, None]
            rows.append(torch.where(ended, rows[-1], row))
        return torch.stack(rows[::-1], dim=1)

    def _columns(self, sequences: PartlyFilled) -> Int[Tensor, " columns"]:
        return torch.arange(sequences.reference.shape[1] + 1, device=sequences.place.device)

    def __str__(self) -> str:
        return f"max-edits({self.count})"


def _cost(token: Int[Tensor, " n"], reference: Int[Tensor, "n reference"]) -> Tensor:
    """Return what it costs to have a token where the text has each of its own."""
    fits = (token[:, None] == reference) | (token == UNFILLED)[:, None]
    return torch.where(reference < 0, _FAR, 1 - fits.long())


def _next_row(row: Tensor, cost: Tensor, column: Tensor) -> Tensor:
    """Return the distances with one token more."""
    replaced = torch.nn.functional.pad(row[:, :-1] + cost, (1, 0), value=_FAR)
    best = torch.minimum(row + 1, replaced)
    # Tokens of the text that are left out: d[j] = min over k ≤ j of best[k] + j − k.
    return (best - column).cummin(1).values + column
