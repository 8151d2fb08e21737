"""Constraints on positions: the tokens allowed there, and how many may differ from a text's."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from maskov.constraints.base import UNFILLED, Constraint, PartlyFilled, per_model
from maskov.constraints.words import check_proposed, has_letters_only, spellings
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Bool, Int, Tensor

_RULE = re.compile(r"\s*(\d+)(?:-(\d+))?\s*:\s*(.*?)\s*")
_FAR = 2**20


@dataclass(frozen=True)
class AllowedTokens(Constraint):
    """Positions hold only the tokens that are allowed there.

    `rules` are first and last position, counted from 1, and the tokens: words separated by spaces,
    or letters where every token is one letter. Rules that share a position are all met.
    """

    rules: tuple[tuple[int, int, str], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple) or not self.rules:
            raise InputError("there is no rule of allowed tokens: write 30-35:AGST.")
        for first, last, text in self.rules:
            whole = isinstance(first, int) and isinstance(last, int)
            if not (whole and 1 <= first <= last and text.strip()):
                raise InputError(
                    f"'{first}-{last}:{text}' allows no token anywhere: write 30-35:AGST, with "
                    "positions counted from 1."
                )

    @classmethod
    def parse(cls, text: str) -> AllowedTokens:
        """Read rules such as `30-35:AGST, 40:C`."""
        rules = []
        for part in text.split(","):
            match = _RULE.fullmatch(part)
            if match is None:
                raise InputError(
                    f"'{part.strip()}' is not a rule of allowed tokens: write 30-35:AGST."
                )
            rules.append((int(match[1]), int(match[2] or match[1]), match[3]))
        return cls(tuple(rules))

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Look the place up."""
        return _table(model, self)[sequences.place.clamp(max=self.last)]

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether every known token is allowed where it stands."""
        known, table = sequences.known, _table(model, self)
        place = torch.arange(known.shape[1], device=known.device).clamp(max=self.last)
        fine = table[place.expand(known.shape), known.clamp(min=0)]
        return (fine | (known < 0)).all(1)

    @property
    def violation(self) -> str:
        """A token is another."""
        return f"holds a token that is not allowed at its position ({self})"

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse changing lengths, positions that do not exist, and positions without a token."""
        if resizable:
            raise InputError(
                "allowed tokens are those of fixed positions, which moves that change the length "
                "shift: drop insert-delete and resize, or --allow."
            )
        shortest = int(sequences.lengths.min())
        if self.last > shortest:
            raise InputError(
                f"tokens are allowed at position {self.last}, but a sequence has {shortest} "
                "tokens: use a larger --length, or other positions."
            )
        empty = (~(_table(model, self) & ~model.forbidden).any(1)).nonzero().flatten()
        if empty.numel():
            raise InputError(f"no token is allowed at position {int(empty[0]) + 1}: {self}.")

    @property
    def last(self) -> int:
        """The last position that has a rule."""
        return max(last for _, last, _ in self.rules)

    def __str__(self) -> str:
        rules = (
            f"{first}:{text}" if first == last else f"{first}-{last}:{text}"
            for first, last, text in self.rules
        )
        return f"allowed({', '.join(rules)})"


@per_model
def _table(model: MaskedModel, given: AllowedTokens) -> Bool[Tensor, "positions vocabulary"]:
    """Return the tokens allowed at each position; the last row is that of all further ones."""
    last = given.last
    if last > model.max_length:
        raise InputError(
            f"tokens are allowed at position {last}, but '{model.name}' takes at most "
            f"{model.max_length} tokens."
        )
    table = torch.ones((last + 1, model.vocabulary_size), dtype=torch.bool)
    for first, last, text in given.rules:
        chosen = torch.zeros(model.vocabulary_size, dtype=torch.bool)
        chosen[_tokens(model, text)] = True
        table[first - 1 : last] &= chosen
    return table.to(model.device)


def _tokens(model: MaskedModel, text: str) -> list[int]:
    """Return the tokens that a text lists."""
    words = text.split()
    if has_letters_only(model):
        words = [letter for word in words for letter in word]
    found = list[int]()
    for word in words:
        check_proposed(model, word)
        single = [ids[0] for ids in spellings(model, word) if len(ids) == 1]
        if not single:
            raise InputError(f"'{word}' is not a single token of '{model.name}': allow others.")
        found += single
    return found


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
            rows.append(next_row(rows[-1], cost, column))
        return torch.stack(rows, dim=1)

    def _after(self, sequences: PartlyFilled) -> Int[Tensor, "n places reference"]:
        """Return the distance of the tokens from i on to those of the text from j on."""
        reference, column = sequences.reference, self._columns(sequences)
        left = (reference >= 0).sum(1, keepdim=True) - column
        rows = [torch.where(left < 0, _FAR, left)]
        for place in reversed(range(sequences.tokens.shape[1])):
            cost = _cost(sequences.known[:, place], reference).flip(1)
            row = next_row(rows[-1].flip(1), cost, column).flip(1)
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


def next_row(row: Tensor, cost: Tensor, column: Tensor) -> Tensor:
    """Return the distances with one token more."""
    replaced = torch.nn.functional.pad(row[:, :-1] + cost, (1, 0), value=_FAR)
    best = torch.minimum(row + 1, replaced)
    # Tokens of the text that are left out: d[j] = min over k ≤ j of best[k] + j − k.
    return (best - column).cummin(1).values + column
