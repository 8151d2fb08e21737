"""The constraint that some words occur, wherever they fit.

Whether the unfilled places leave room for all words is found from left to right: which sets of
words can stand, without overlap, in the first i places. An unfilled place may hold any token. As
words are at most eight, the sets are at most 256.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.constraints.base import OUTSIDE, UNFILLED, Constraint, PartlyFilled, quoted, remembered
from maskov.constraints.words import check_proposed, check_words, continues, spellings
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Bool, Int, Tensor

MOST_WORDS = 8


@dataclass(frozen=True)
class ContainsWords(Constraint):
    """Each word occurs as a whole word; a word that is listed twice occurs twice.

    Words do not overlap. Spans of more positions than a word has tokens move it at once; shorter
    ones have to go by way of sequences that hold it, or its first tokens, twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        check_words(self.words, "contain")
        if len(self.words) > MOST_WORDS:
            raise InputError(
                f"at most {MOST_WORDS} words can be required, not {len(self.words)}: drop some."
            )

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Try every kind of token: each piece of a word, other continuing tokens, all others."""
        words, known = self._words(model), sequences.known
        shape = (len(known), model.vocabulary_size)
        allowed = torch.ones(shape, dtype=torch.bool, device=known.device)
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
        return self._words(model).fit(sequences.known)

    @property
    def violation(self) -> str:
        """They do not fit."""
        return f"neither holds {quoted(self.words)} nor has blanks in which they fit"

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse words that the model does not know, or that are more than the sequences hold."""
        for word in self.words:
            check_proposed(model, word)
        needed = sum(min(map(len, spellings(model, word))) for word in self.words)
        shortest = int(sequences.lengths.min())
        if needed > shortest:
            raise InputError(
                f"{quoted(self.words)} take {needed} tokens, more than a sequence of {shortest} "
                "holds: use fewer words or a larger --length."
            )

    def longest(self, model: MaskedModel) -> int:
        """Return the number of tokens of the longest word."""
        return max(min(map(len, spellings(model, word))) for word in self.words)

    def _words(self, model: MaskedModel) -> _Words:
        return remembered(model, self, lambda: _Words(self.words, model))

    def __str__(self) -> str:
        return f"contains({', '.join(self.words)})"


class _Words:
    """The words as a model writes them.

    `kinds` are tokens of which one stands for all of its kind, `kind_of` is the kind of each token.
    The last two kinds are tokens of no word: one that continues the word before it, and one that
    does not, which have ids beyond the vocabulary.
    """

    def __init__(self, words: tuple[str, ...], model: MaskedModel) -> None:
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
        sets = 2 ** len(self.spellings)
        reached = [
            torch.zeros((count, sets), dtype=torch.bool, device=known.device)
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
        size, length = len(spelling), known.shape[1]
        padded = torch.nn.functional.pad(known, (0, size), value=OUTSIDE)
        stands = torch.ones_like(known, dtype=torch.bool)
        for number, token in enumerate(spelling):
            here = padded[:, number : number + length]
            stands &= (here == token) if certain else (here == token) | (here == UNFILLED)
        after = padded[:, size : size + length]
        stands &= ~((after >= 0) & self.continues[after.clamp(min=0)])
        if certain:
            stands &= after != UNFILLED
        if spelling[0] in self.inner:  # it would continue the word before it
            stands[:, 1:] = False
        return stands
