"""The constraints: words that never occur or all occur, tokens of positions, changes to a text.

Whether the unfilled places leave room for all words of `ContainsWords` is found from left to right:
which sets of words can stand, without overlap, in the first i places. An unfilled place may hold
any token. As words are at most eight, the sets are at most 256.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from maskov.constraints.base import (
    OUTSIDE,
    UNFILLED,
    Constraint,
    PartlyFilled,
    Spelling,
    check_proposed,
    continues,
    has_letters_only,
    per_model,
    quoted,
    spelled_at,
    spellings,
)
from maskov.errors import InputError, refuse
from maskov.models.base import MaskedModel
from maskov.types import Bool, Int, Tensor

MOST_WORDS = 8
_RULE = re.compile(r"\s*(\d+)(?:-(\d+))?\s*:\s*(.*?)\s*")
_FAR = 2**20


@dataclass(frozen=True)
class AvoidWords(Constraint):
    """No word occurs: its tokens never stand next to each other in their order.

    A word of one token is avoided wherever that token may stand, at the beginning of a longer word,
    too.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        check_words(self.words, "avoid")

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Leave out each token that would complete a word whose other tokens are known."""
        place = sequences.place
        allowed = torch.ones(
            (len(place), model.vocabulary_size), dtype=torch.bool, device=place.device
        )
        spelled = self._spellings(model)
        allowed[:, [spelling[0] for spelling in spelled if len(spelling) == 1]] = False
        for spelling in spelled:
            for number, token in enumerate(spelling if len(spelling) > 1 else ()):
                completes = torch.ones_like(place, dtype=torch.bool)
                for other, wanted in enumerate(spelling):
                    if other != number:
                        completes &= sequences.known_at(place + other - number) == wanted
                allowed[:, token] &= ~completes
        return allowed

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether no word stands in the known tokens."""
        found = [spelled_at(sequences.known, one).any(1) for one in self._spellings(model)]
        return ~torch.stack(found).any(0)

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse words that the model does not know, and to avoid every token."""
        left = ~model.forbidden.cpu()
        left[[spelling[0] for spelling in self._spellings(model) if len(spelling) == 1]] = False
        refuse(
            (
                not left.any(),
                f"no token is left: avoid less than {quoted(self.words)}.",
            ),
        )

    def _spellings(self, model: MaskedModel) -> list[Spelling]:
        return [spelling for word in self.words for spelling in spellings(model, word)]

    def __str__(self) -> str:
        return f"avoid({', '.join(self.words)})"


@dataclass(frozen=True)
class ContainsWords(Constraint):
    """Each word occurs as a whole word; a word that is listed twice occurs twice.

    Words do not overlap. Spans of more positions than a word has tokens move it at once; shorter
    ones have to go by way of sequences that hold it, or its first tokens, twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        check_words(self.words, "contain")
        refuse(
            (
                len(self.words) > MOST_WORDS,
                f"at most {MOST_WORDS} words can be required, not {len(self.words)}: drop some.",
            ),
        )

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Try every kind of token: each piece of a word, other continuing tokens, all others."""
        words, known = _words(model, self.words), sequences.known
        allowed = torch.ones(
            (len(known), model.vocabulary_size), dtype=torch.bool, device=known.device
        )
        # Where all words stand already and no next token can break one, every token may follow.
        rest = (~words.fit(known, certain=True)).nonzero().flatten()
        if not rest.numel():
            return allowed
        kinds = len(words.kinds)
        tried = known[rest][:, None].repeat(1, kinds, 1)
        at = sequences.place[rest][:, None, None].expand(-1, kinds, 1)
        tried = tried.scatter(2, at, words.kinds.expand(len(rest), -1)[:, :, None])
        fits = words.fit(tried.flatten(0, 1)).view(len(rest), kinds)
        return allowed.index_copy(0, rest, fits[:, words.kind_of])

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether all words can stand."""
        return _words(model, self.words).fit(sequences.known)

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse words that the model does not know, or that are more than the sequences hold."""
        for word in self.words:
            check_proposed(model, word)
        needed = sum(min(map(len, spellings(model, word))) for word in self.words)
        shortest = int(sequences.lengths.min())
        refuse(
            (
                needed > shortest,
                f"{quoted(self.words)} take {needed} tokens, more than a sequence of {shortest} "
                "holds: use fewer words or a larger --length.",
            ),
        )

    def longest(self, model: MaskedModel) -> int:
        """Return the number of tokens of the longest word."""
        return max(min(map(len, spellings(model, word))) for word in self.words)

    def __str__(self) -> str:
        return f"contains({', '.join(self.words)})"


class _Words:
    """The words as a model writes them.

    `kinds` are tokens of which one stands for all of its kind, `kind_of` is the kind of each token.
    The last two kinds are tokens of no word: one that continues the word before it, and one that
    does not, which have ids beyond the vocabulary.
    """

    def __init__(self, model: MaskedModel, words: tuple[str, ...]) -> None:
        size, device = model.vocabulary_size, model.device
        self.spellings = [spellings(model, word) for word in words]
        pieces = sorted({piece for word in self.spellings for one in word for piece in one})
        continuing = continues(model)
        self.kinds = torch.tensor([*pieces, size, size + 1], device=device)
        kind_of = torch.full((size,), len(pieces), device=device) + continuing.long()
        kind_of[pieces] = torch.arange(len(pieces), device=device)
        self.kind_of = kind_of
        self.inner = {piece for piece in pieces if continuing[piece]}
        self.continues = torch.cat([continuing, torch.tensor([False, True], device=device)])
        every = torch.arange(2 ** len(words), device=device)
        self.without = [every[(every >> n) & 1 == 0] for n in range(len(words))]

    def fit(self, known: Int[Tensor, "n length"], certain: bool = False) -> Bool[Tensor, " n"]:
        """Return whether all words can stand; `certain`: whether they do, whatever is filled in."""
        count, length = known.shape
        reached = [
            torch.zeros((count, 2 ** len(self.spellings)), dtype=torch.bool, device=known.device)
            for _ in range(length + 1)
        ]
        reached[0][:, 0] = True
        standing = [
            (number, len(one), self._standing(known, one, certain))
            for number, word in enumerate(self.spellings)
            for one in word
        ]
        for start in range(length):
            here = reached[start]
            reached[start + 1] |= here
            for number, size, stands in standing:
                if start + size <= length:
                    rest = self.without[number]
                    placed = here[:, rest] & stands[:, start, None]
                    reached[start + size][:, rest + 2**number] |= placed
        return reached[length][:, -1]

    def _standing(
        self, known: Int[Tensor, "n length"], spelling: tuple[int, ...], certain: bool
    ) -> Bool[Tensor, "n length"]:
        """Return where a spelling can begin, or certainly begins."""
        stands, size = spelled_at(known, spelling, or_unfilled=not certain), len(spelling)
        after = torch.nn.functional.pad(known, (0, size), value=OUTSIDE)[:, size:]
        stands &= ~((after >= 0) & self.continues[after.clamp(min=0)])
        if certain:
            stands &= after != UNFILLED
        if spelling[0] in self.inner:  # it would continue the word before it
            stands[:, 1:] = False
        return stands


_words = per_model(_Words)


def check_words(words: object, verb: str) -> None:
    """Refuse an empty list of words, and empty words."""
    given = words if isinstance(words, tuple) else ()
    refuse(
        (not given, f"there is no word to {verb}."),
        (
            not all(isinstance(word, str) and word.strip() for word in given),
            f"a word to {verb} is empty.",
        ),
    )


def check_words_agree(constraints: Sequence[Constraint], model: MaskedModel) -> None:
    """Refuse to contain and to avoid a word."""
    wanted = [w for one in constraints if isinstance(one, ContainsWords) for w in one.words]
    avoided = [w for one in constraints if isinstance(one, AvoidWords) for w in one.words]
    refuse(
        *(
            (
                all(
                    any(_holds(ids, part) for part in spellings(model, other))
                    for ids in spellings(model, word)
                ),
                f"no sequence contains '{word}' and avoids '{other}': drop one of them.",
            )
            for word in wanted
            for other in avoided
        )
    )


def _holds(ids: Spelling, part: Spelling) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids) - len(part) + 1))


@dataclass(frozen=True)
class AllowedTokens(Constraint):
    """Positions hold only the tokens that are allowed there.

    `rules` are first and last position, counted from 1, and the tokens: words separated by spaces,
    or letters where every token is one letter. Rules that share a position are all met.
    """

    rules: tuple[tuple[int, int, str], ...]

    def __post_init__(self) -> None:
        refuse(
            (
                not isinstance(self.rules, tuple) or not self.rules,
                "there is no rule of allowed tokens: write 30-35:AGST.",
            ),
        )
        refuse(
            *(
                (
                    not {type(first), type(last)} <= {int}
                    or not 1 <= first <= last
                    or not text.strip(),
                    f"'{first}-{last}:{text}' allows no token anywhere: write 30-35:AGST, with "
                    "positions counted from 1.",
                )
                for first, last, text in self.rules
            )
        )

    @classmethod
    def parse(cls, text: str) -> AllowedTokens:
        """Read rules such as `30-35:AGST, 40:C`."""
        parts = [(part.strip(), _RULE.fullmatch(part)) for part in text.split(",")]
        refuse(
            *(
                (not found, f"'{part}' is not a rule of allowed tokens: write 30-35:AGST.")
                for part, found in parts
            )
        )
        return cls(tuple((int(m[1]), int(m[2] or m[1]), m[3]) for _, m in parts if m))

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Look the place up."""
        return _table(model, self)[sequences.place.clamp(max=self.last)]

    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether every known token is allowed where it stands."""
        known, table = sequences.known, _table(model, self)
        place = torch.arange(known.shape[1], device=known.device).clamp(max=self.last)
        fine = table[place.expand(known.shape), known.clamp(min=0)]
        return (fine | (known < 0)).all(1)

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse changing lengths, positions that do not exist, and positions without a token."""
        shortest = int(sequences.lengths.min())
        refuse(
            (
                resizable,
                "allowed tokens are those of fixed positions, which moves that change the length "
                "shift: drop insert-delete and resize, or --allow.",
            ),
            (
                self.last > shortest,
                f"tokens are allowed at position {self.last}, but a sequence has {shortest} "
                "tokens: use a larger --length, or other positions.",
            ),
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
    refuse(
        (
            given.last > model.max_length,
            f"tokens are allowed at position {given.last}, but '{model.name}' takes at most "
            f"{model.max_length} tokens.",
        )
    )
    table = torch.ones((given.last + 1, model.vocabulary_size), dtype=torch.bool)
    for first, last, text in given.rules:
        chosen = torch.zeros(model.vocabulary_size, dtype=torch.bool)
        chosen[_tokens(model, text)] = True
        table[first - 1 : last] &= chosen
    return table.to(model.device)


def _tokens(model: MaskedModel, text: str) -> list[int]:
    """Return the tokens that a text lists."""
    words = list("".join(text.split())) if has_letters_only(model) else text.split()
    found = list[int]()
    for word in words:
        check_proposed(model, word)
        single = [ids[0] for ids in spellings(model, word) if len(ids) == 1]
        refuse((not single, f"'{word}' is not a single token of '{model.name}': allow others."))
        found += single
    return found


@dataclass(frozen=True)
class _Closeness(Constraint):
    """What both distances share."""

    count: int

    def __post_init__(self) -> None:
        refuse(
            (
                not isinstance(self.count, int) or self.count < 0,
                f"the changes are limited to 0 or more, not {self.count}.",
            ),
        )

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse chains that start from no text."""
        refuse(
            (
                not sequences.reference.shape[1],
                "a limit on changes counts those to the text that a chain starts from: give one "
                "with --start-text, or drop --max-changes.",
            ),
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

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse changing lengths."""
        super().check(model, sequences, resizable)
        refuse(
            (
                resizable,
                "MaxChanges counts positions, which moves that change the length shift: use "
                "MaxEdits.",
            ),
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

    def _before(self, sequences: PartlyFilled) -> Int[Tensor, "n places reference"]:
        """Return the distance of the first i tokens from the first j of the text."""
        reference = sequences.reference
        column = torch.arange(reference.shape[1] + 1, device=reference.device)
        rows = [column.expand(len(reference), -1)]
        for place in range(sequences.tokens.shape[1]):
            rows.append(next_row(rows[-1], _cost(sequences.known[:, place], reference), column))
        return torch.stack(rows, dim=1)

    def _after(self, sequences: PartlyFilled) -> Int[Tensor, "n places reference"]:
        """Return the distance of the tokens from i on to those of the text from j on."""
        reference = sequences.reference
        column = torch.arange(reference.shape[1] + 1, device=reference.device)
        left = (reference >= 0).sum(1, keepdim=True) - column
        rows = [torch.where(left < 0, _FAR, left)]
        for place in reversed(range(sequences.tokens.shape[1])):
            cost = _cost(sequences.known[:, place], reference).flip(1)
            row = next_row(rows[-1].flip(1), cost, column).flip(1)
            ended = (place >= sequences.lengths)[:, None]
            rows.append(torch.where(ended, rows[-1], row))
        return torch.stack(rows[::-1], dim=1)

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
