"""Words as token sequences, and the constraints that some never occur or all occur.

Whether the unfilled places leave room for all words of `ContainsWords` is found from left to right:
which sets of words can stand, without overlap, in the first i places. An unfilled place may hold
any token. As words are at most eight, the sets are at most 256.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from maskov.constraints.base import OUTSIDE, UNFILLED, Constraint, PartlyFilled, per_model, quoted
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Bool, Int, Tensor

MOST_WORDS = 8
Spelling = tuple[int, ...]
# How tokens begin a word, in byte pairs and in SentencePiece.
_SPACES = ("Ġ", "▁")


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
        shape = (len(place), model.vocabulary_size)
        allowed = torch.ones(shape, dtype=torch.bool, device=place.device)
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

    @property
    def violation(self) -> str:
        """It holds one."""
        return f"holds what is to be avoided: {quoted(self.words)}"

    def check(self, model: MaskedModel, sequences: PartlyFilled, resizable: bool) -> None:
        """Refuse words that the model does not know, and to avoid every token."""
        single = [spelling[0] for spelling in self._spellings(model) if len(spelling) == 1]
        left = ~model.forbidden.cpu()
        left[single] = False
        if not left.any():
            raise InputError(f"no token is left: avoid less than {quoted(self.words)}.")

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
        if len(self.words) > MOST_WORDS:
            raise InputError(
                f"at most {MOST_WORDS} words can be required, not {len(self.words)}: drop some."
            )

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Try every kind of token: each piece of a word, other continuing tokens, all others."""
        words, known = _words(model, self.words), sequences.known
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
        return _words(model, self.words).fit(sequences.known)

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
    if not isinstance(words, tuple) or not words:
        raise InputError(f"there is no word to {verb}.")
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(f"a word to {verb} is empty.")


@per_model
def spellings(model: MaskedModel, word: str) -> tuple[Spelling, ...]:
    """Return the tokens of a word: as a text begins with it, and as it follows others."""
    texts = [word, f" {word}"]
    if has_letters_only(model):  # some of whose tokenizers want spaces between letters
        texts.append(" ".join("".join(word.split())))
    written = dict.fromkeys(tuple(model.encode(text)) for text in texts)
    found, unknown = list[Spelling](), None
    for ids in written:
        bad = [i for i in ids if i == model.mask_id or not model.may_stand(i)]
        unknown = bad[0] if bad else unknown
        if ids and not bad:
            found.append(ids)
    if not found:
        token = f" ('{model.token_strings([unknown])[0]}')" if unknown is not None else ""
        raise InputError(
            f"'{word}' holds a token that no sample of '{model.name}' may hold{token}; use words "
            "of the model's vocabulary."
        )
    return tuple(found)


def check_proposed(model: MaskedModel, word: str) -> None:
    """Refuse a word with a letter that is never proposed, where samples should hold it."""
    for token in (token for ids in spellings(model, word) for token in ids):
        if token in model.only_given:
            letter = model.token_strings([token])[0]
            raise InputError(
                f"'{model.name}' proposes the 20 amino acids only, not '{letter}': add "
                f"--model 'NAME(extra_letters={letter})'."
            )


@per_model
def has_letters_only(model: MaskedModel) -> bool:
    """Whether every token that may be sampled is one letter, as in models of proteins."""
    allowed = (~model.forbidden).nonzero().flatten().tolist()
    return all(len(name) == 1 for name in model.token_strings(allowed))


@per_model
def continues(model: MaskedModel) -> Bool[Tensor, " vocabulary"]:
    """Return which tokens continue the word before them: where tokens are whole words, none."""
    names = model.token_strings(range(model.vocabulary_size))
    if any(name.startswith("##") for name in names):  # WordPiece
        marks = [name.startswith("##") for name in names]
    elif any(name.startswith(_SPACES) for name in names):  # byte pairs and SentencePiece
        marks = [not name.startswith(_SPACES) and name[:1].isalnum() for name in names]
    else:
        marks = [False] * len(names)
    return torch.tensor(marks, device=model.device)


def spelled_at(
    known: Int[Tensor, "n length"], spelling: Spelling, or_unfilled: bool = False
) -> Bool[Tensor, "n length"]:
    """Return where a spelling begins, or could begin if unfilled places may hold any token."""
    length = known.shape[1]
    padded = torch.nn.functional.pad(known, (0, len(spelling)), value=OUTSIDE)
    found = torch.ones_like(known, dtype=torch.bool)
    for number, token in enumerate(spelling):
        here = padded[:, number : number + length]
        found &= (here == token) | (or_unfilled & (here == UNFILLED))
    return found


def check_words_agree(constraints: Sequence[Constraint], model: MaskedModel) -> None:
    """Refuse to contain and to avoid a word."""
    wanted = [w for one in constraints if isinstance(one, ContainsWords) for w in one.words]
    avoided = [w for one in constraints if isinstance(one, AvoidWords) for w in one.words]
    for word in wanted:
        for other in avoided:
            if all(
                any(_holds(ids, part) for part in spellings(model, other))
                for ids in spellings(model, word)
            ):
                raise InputError(
                    f"no sequence contains '{word}' and avoids '{other}': drop one of them."
                )


def _holds(ids: Spelling, part: Spelling) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids) - len(part) + 1))
