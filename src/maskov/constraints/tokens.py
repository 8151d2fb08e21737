"""The constraint that positions hold only some tokens, such as residues 30 to 35 of a protein."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from maskov.constraints.base import Constraint, PartlyFilled, remembered
from maskov.constraints.words import check_proposed, has_letters_only, spellings
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Bool, Tensor

_RULE = re.compile(r"\s*(\d+)(?:-(\d+))?\s*:\s*(.*?)\s*")


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
        return self._table(model)[sequences.place.clamp(max=self._last)]

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether every known token is allowed where it stands."""
        known, table = sequences.known, self._table(model)
        place = torch.arange(known.shape[1], device=known.device).clamp(max=self._last)
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
        if self._last > shortest:
            raise InputError(
                f"tokens are allowed at position {self._last}, but a sequence has {shortest} "
                "tokens: use a larger --length, or other positions."
            )
        empty = (~(self._table(model) & ~model.forbidden).any(1)).nonzero().flatten()
        if empty.numel():
            raise InputError(f"no token is allowed at position {int(empty[0]) + 1}: {self}.")

    @property
    def _last(self) -> int:
        return max(last for _, last, _ in self.rules)

    def _table(self, model: MaskedModel) -> Bool[Tensor, "positions vocabulary"]:
        """Return the tokens allowed at each position; the last row is that of all further ones."""
        return remembered(model, self, lambda: self._made(model))

    def _made(self, model: MaskedModel) -> Bool[Tensor, "positions vocabulary"]:
        if self._last > model.max_length:
            raise InputError(
                f"tokens are allowed at position {self._last}, but '{model.name}' takes at most "
                f"{model.max_length} tokens."
            )
        table = torch.ones((self._last + 1, model.vocabulary_size), dtype=torch.bool)
        for first, last, text in self.rules:
            chosen = torch.zeros(model.vocabulary_size, dtype=torch.bool)
            chosen[_tokens(model, text)] = True
            table[first - 1 : last] &= chosen
        return table.to(model.device)

    def __str__(self) -> str:
        rules = (
            f"{first}:{text}" if first == last else f"{first}-{last}:{text}"
            for first, last, text in self.rules
        )
        return f"allowed({', '.join(rules)})"


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
