"""A constraint restricts proposals to sequences that meet it, so that it costs no rejections.

The target is then p(x) ∝ exp(−E(x)/T) over the sequences that meet every constraint. A move fills
its window one place after the other. At each place a constraint says with which tokens it can still
be met, given what stands outside the window, what is filled so far, and the place. The reverse asks
the same function about the old tokens, so that both probabilities stay exact:

    q(x'|x) = Π_j q(x'_{o_j} | x outside the window, x'_{o_1}, …, x'_{o_{j−1}}, allowed tokens)

Two constraints may leave no token between them. The proposal is then rejected: staying is allowed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch

from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.types import Batch, Bool, Int, Tensor, inside

# What `PartlyFilled.known` holds where no token is known.
UNFILLED, OUTSIDE = -1, -2
Spelling = tuple[int, ...]
# How tokens begin a word, in byte pairs and in SentencePiece.
_SPACES = ("Ġ", "▁")

_Made = TypeVar("_Made")
_Rest = ParamSpec("_Rest")
_TABLES: WeakKeyDictionary[MaskedModel, dict[Any, Any]] = WeakKeyDictionary()


@dataclass(frozen=True)
class PartlyFilled(Batch):
    """Sequences some of whose places are still `unfilled`; `place` is the one that is filled next.

    `reference` are the tokens of the text that a chain started from, padded with −1.
    """

    tokens: Int[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    unfilled: Bool[Tensor, "n length"]
    place: Int[Tensor, " n"]
    reference: Int[Tensor, "n reference"]

    @cached_property
    def known(self) -> Int[Tensor, "n length"]:
        """The tokens, with `UNFILLED` and `OUTSIDE` where there is none yet or none at all."""
        known = self.tokens.masked_fill(self.unfilled, UNFILLED)
        return known.masked_fill(~inside(self.lengths, known.shape[1]), OUTSIDE)

    def known_at(self, place: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Return what is known of one place of each sequence, which may lie outside of it."""
        width = self.tokens.shape[1]
        held = self.known.gather(1, place.clamp(0, width - 1)[:, None]).squeeze(1)
        return torch.where((place >= 0) & (place < width), held, OUTSIDE)


class Constraint(ABC):
    """What every sequence of a run must meet. Frozen dataclasses of plain data can be resumed."""

    @abstractmethod
    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Return the tokens that may be put at the next place, so that it can still be met."""

    @abstractmethod
    def possible(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return whether it can still be met; where no place is unfilled, whether it is met."""

    def check(  # noqa: B027 - most have something to refuse, not all
        self, model: MaskedModel, sequences: PartlyFilled, resizable: bool
    ) -> None:
        """Refuse what no run of a model from these first sequences can meet."""


def per_model(
    make: Callable[Concatenate[MaskedModel, _Rest], _Made],
) -> Callable[Concatenate[MaskedModel, _Rest], _Made]:
    """Make something for a model and some arguments once; it is forgotten with the model."""

    @wraps(make)
    def remembered(model: MaskedModel, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Made:
        tables = _TABLES.setdefault(model, {})
        key = (make, args, *kwargs.items())
        if key not in tables:
            tables[key] = make(model, *args, **kwargs)
        made: _Made = tables[key]
        return made

    return remembered


@per_model
def spellings(model: MaskedModel, word: str) -> tuple[Spelling, ...]:
    """Return the tokens of a word: as a text begins with it, and as it follows others."""
    texts = [word, f" {word}"]
    if has_letters_only(model):  # some of whose tokenizers want spaces between letters
        texts.append(" ".join("".join(word.split())))
    written = dict.fromkeys(tuple(model.encode(text)) for text in texts)
    bad = {ids: [i for i in ids if i == model.mask_id or not model.may_stand(i)] for ids in written}
    found = [ids for ids in written if ids and not bad[ids]]
    if not found:
        unknown = [tokens[0] for tokens in bad.values() if tokens]
        token = f" ('{model.token_strings(unknown)[-1]}')" if unknown else ""
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
    padded = torch.nn.functional.pad(known, (0, len(spelling)), value=OUTSIDE)
    found = torch.ones_like(known, dtype=torch.bool)
    for number, token in enumerate(spelling):
        here = padded[:, number : number + known.shape[1]]
        found &= (here == token) | (or_unfilled & (here == UNFILLED))
    return found


def quoted(words: tuple[str, ...]) -> str:
    """Write words as a list in quotes."""
    return ", ".join(f"'{word}'" for word in words)
