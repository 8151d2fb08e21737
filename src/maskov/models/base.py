"""The interface of masked models: scores of every token at a masked position, given the rest.

Scoring has two stages. `hidden`, the expensive one, runs masked sequences through the network and
returns one vector per masked position; `logits` and `logit_of` turn vectors into scores of the
whole vocabulary or of one token. Chains cache the vectors and repeat only the second stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate
from threading import Condition, Lock, local

import torch

from maskov.config import ModelSource
from maskov.errors import refuse
from maskov.models.tokens import token_spans
from maskov.types import Bool, Float, Int, Tensor

# Scores of the vocabulary held at once when the head runs outside a model pass.
_HEAD_SCORES = 2**24


@dataclass(frozen=True)
class Queries:
    """A batch of masked sequences of mixed lengths: content tokens only, padded on the right.

    `source` is the index of each sequence's source text, for conditional models.
    """

    tokens: Int[Tensor, "passes length"]
    lengths: Int[Tensor, " passes"]
    masked: Bool[Tensor, "passes length"]
    source: Int[Tensor, " passes"] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def same_as(self, other: Queries) -> bool:
        """Whether two batches ask the same."""
        mine, theirs = vars(self).values(), vars(other).values()
        return all(
            one is two or (one is not None and two is not None and torch.equal(one, two))
            for one, two in zip(mine, theirs, strict=True)
        )

    def rows(self, index: Int[Tensor, " n"], width: int) -> Queries:
        """Return the chosen queries, cut to `width` positions."""
        return Queries(
            self.tokens[index, :width],
            self.lengths[index],
            self.masked[index, :width],
            None if self.source is None else self.source[index],
        )


class MaskedModel(ABC):
    """A model that scores masked positions over a finite vocabulary.

    `forbidden` marks tokens that must never be proposed or sampled; those of them that are
    `only_given` may stand in given texts, where they stay. `min_length` and `max_length` count
    content tokens, without the special tokens that the model adds around them.
    """

    name: str
    mask_id: int
    forbidden: Bool[Tensor, " vocabulary"]
    only_given: frozenset[int] = frozenset()
    min_length: int
    max_length: int
    device: torch.device
    dtype: torch.dtype
    # A warning shown to the user, if not empty.
    caution: str = ""
    precision: str = "float32"
    # Whether sequences of mixed lengths need no padding.
    packs: bool = False
    # The same model in full precision, if this one is in a lower one.
    exact: MaskedModel | None = None
    # How it was loaded, and what was changed since; None if nobody can tell.
    source: ModelSource | None = None

    def __repr__(self) -> str:
        options = [
            f"{option.name}={value!r}"
            for option in (() if self.source is None else fields(self.source))
            if option.name != "name"
            and (value := getattr(self.source, option.name)) != option.default
        ]
        return (
            f"<{type(self).__name__} {', '.join([repr(self.name), *options])}: "
            f"{self.vocabulary_size:,} tokens, texts of {self.min_length:,} to "
            f"{self.max_length:,} tokens, {self.precision} on {self.device}>"
        )

    @abstractmethod
    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Run the queries; return a vector for each masked position, in row-major order."""

    def hidden_at(
        self,
        tokens: Int[Tensor, "passes length"],
        lengths: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        source: Int[Tensor, " passes"] | None = None,
    ) -> Float[Tensor, "passes hidden"]:
        """Mask one position of each sequence and return its vector; models may override this."""
        masked = torch.arange(tokens.shape[1], device=tokens.device) == place[:, None]
        return self.hidden(Queries(tokens, lengths, masked, source))

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Return the scores of the full vocabulary."""

    def logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Return the score of one token for each vector; models may override this."""
        return self.logits(hidden).gather(1, tokens[:, None]).squeeze(1)

    @property
    def hidden_width(self) -> int:
        """Width of the vector of a masked position."""
        return self.vocabulary_size

    @property
    def head_rows(self) -> int:
        """How many positions the head should serve at once."""
        return max(1, _HEAD_SCORES // self.vocabulary_size)

    @property
    @abstractmethod
    def bytes_per_token(self) -> int:
        """Rough working memory of one token in a batch, used to choose batch sizes."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Turn a text into content tokens; blanks written as the mask become `mask_id`."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Turn content tokens into a text."""

    @abstractmethod
    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's spelling of each token."""

    def token_spans(self, text: str) -> list[tuple[int, int]] | None:
        """Return where each token of a text begins and ends in it, without spaces around it.

        None if the tokens are spelled otherwise than the text.
        """
        spans = token_spans(text, self.token_strings(self.encode(text)))
        if spans is None:
            return None
        return [
            (end - len(span.lstrip()), end)
            for span, end in zip(spans, accumulate(map(len, spans)), strict=True)
        ]

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of all that decides answers: weights, and how texts become inputs."""

    def control_ids(self) -> frozenset[int]:
        """Return the control tokens, which never occur in a text."""
        return frozenset()

    def may_stand(self, token: int) -> bool:
        """Whether a token may stand in a text, proposed or given."""
        return token in self.only_given or not bool(self.forbidden[token])

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens that the model scores."""
        return self.forbidden.shape[0]


# The precisions of masked passes. Energies are always summed in float64.
PRECISIONS = ("float32", "tf32", "bfloat16", "float64")


def weights_of(precision: str) -> torch.dtype:
    """Return the dtype in which a model of this precision is loaded."""
    refuse(
        (
            precision not in PRECISIONS,
            f"unknown precision '{precision}'; use one of {', '.join(PRECISIONS)}.",
        )
    )
    return torch.float64 if precision == "float64" else torch.float32


def adapted(model: MaskedModel, source: ModelSource, precision: str) -> MaskedModel:
    """Return a model as `load` was asked for it; a table or a custom model takes no options."""
    for method, option, value in (
        ("with_prefix", "prefix", source.prefix),
        ("with_letters", "extra_letters", source.extra_letters),
        ("without_smoothing", "remove_smoothing", source.remove_smoothing),
        ("in_precision", "--precision", precision if precision in ("tf32", "bfloat16") else None),
    ):
        refuse(
            (
                value and not hasattr(model, method),
                f"'{model.name}' cannot be changed so: drop {option}.",
            )
        )
        model = getattr(model, method)(value) if value else model
    return model


# Passes of the same kind of products run at once, those of the other kind wait for their end.
# Whoever waits holds the queue, so that nobody else begins.
_QUEUE, _ENDED = Lock(), Condition()
# For each pass of either kind, coarse or not, the precision before one of them began.
_RUNNING: dict[bool, list[str]] = {True: [], False: []}
_MINE = local()


@contextmanager
def coarse(allowed: bool) -> Iterator[None]:
    """Allow float32 matrix products to round their factors (TF32), if `allowed`.

    Torch has one flag for all threads of a process, so coarse and exact passes take turns. Within
    passes of one kind nothing changes.
    """
    if getattr(_MINE, "inside", False):
        yield
        return
    with _QUEUE, _ENDED:
        _ENDED.wait_for(lambda: not _RUNNING[not allowed])
        _RUNNING[allowed].append(torch.get_float32_matmul_precision())
        if allowed:
            torch.set_float32_matmul_precision("high")
    _MINE.inside = True
    try:
        yield
    finally:
        _MINE.inside = False
        with _ENDED:
            before = _RUNNING[allowed].pop()  # of the first one, if this is the last
            if allowed and not _RUNNING[allowed]:
                torch.set_float32_matmul_precision(before)
            _ENDED.notify_all()
