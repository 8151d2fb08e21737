"""Words as token sequences, and the constraint that some never occur."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.constraints.base import Constraint, PartlyFilled, quoted, remembered
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Bool, Tensor

Spelling = tuple[int, ...]


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
        known = sequences.known
        found = torch.zeros(len(known), dtype=torch.bool, device=known.device)
        for spelling in self._spellings(model):
            starts = known.shape[1] - len(spelling) + 1
            if starts > 0:
                here = torch.ones_like(known[:, :starts], dtype=torch.bool)
                for number, token in enumerate(spelling):
                    here &= known[:, number : number + starts] == token
                found |= here.any(1)
        return ~found

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


def check_words(words: object, verb: str) -> None:
    """Refuse a list of words that is none."""
    if not isinstance(words, tuple) or not words:
        raise InputError(f"there is no word to {verb}.")
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(f"a word to {verb} is empty.")


def spellings(model: MaskedModel, word: str) -> tuple[Spelling, ...]:
    """Return the tokens of a word: as a text begins with it, and as it follows others."""
    return remembered(model, ("spellings", word), lambda: _spellings(model, word))


def _spellings(model: MaskedModel, word: str) -> tuple[Spelling, ...]:
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
                f"--extra-letters {letter}."
            )


def has_letters_only(model: MaskedModel) -> bool:
    """Whether every token that may be sampled is one letter, as in models of proteins."""

    def found() -> bool:
        allowed = (~model.forbidden).nonzero().flatten().tolist()
        return all(len(name) == 1 for name in model.token_strings(allowed))

    return remembered(model, "letters", found)


def continues(model: MaskedModel) -> Bool[Tensor, " vocabulary"]:
    """Return which tokens continue the word before them: where tokens are whole words, none."""
    return remembered(model, "continues", lambda: _continues(model))


def _continues(model: MaskedModel) -> Bool[Tensor, " vocabulary"]:
    names = model.token_strings(range(model.vocabulary_size))
    if any(name.startswith("##") for name in names):  # WordPiece
        marks = [name.startswith("##") for name in names]
    elif any(name.startswith(_SPACES) for name in names):  # byte pairs and SentencePiece
        marks = [not name.startswith(_SPACES) and name[:1].isalnum() for name in names]
    else:
        marks = [False] * len(names)
    return torch.tensor(marks, device=model.device)


_SPACES = ("Ġ", "▁")
