"""The protocol of models: they say which token stands at a masked position, given the rest.

A model answers in two stages, because they differ in price. `hidden` runs the masked sequences
through the network and keeps one vector for each masked position; `logits` and `logit_of` turn
such vectors into scores for the whole vocabulary or for one token. A chain keeps the vectors and
asks the cheap second stage as often as it likes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from maskov.errors import ModelError
from maskov.types import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class Queries:
    """A batch of masked sequences of mixed lengths: content tokens only, padded on the right.

    `source` says which of its sources a conditional model reads beside each; others read none.
    """

    tokens: Int[Tensor, "passes length"]
    lengths: Int[Tensor, " passes"]
    masked: Bool[Tensor, "passes length"]
    source: Int[Tensor, " passes"] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def rows(self, index: Int[Tensor, " n"], width: int) -> Queries:
        """Return the chosen queries, cut to `width` positions."""
        source = None if self.source is None else self.source[index]
        tokens, masked = self.tokens[index, :width], self.masked[index, :width]
        return Queries(tokens, self.lengths[index], masked, source)


class MaskedModel(ABC):
    """Anything that answers masked queries over a finite vocabulary.

    `forbidden` marks the tokens that may be neither proposed nor sampled. `min_length` and
    `max_length` count content tokens, without whatever frame the model puts around them.
    """

    name: str
    mask_id: int
    forbidden: Bool[Tensor, " vocabulary"]
    min_length: int
    max_length: int
    device: torch.device
    dtype: torch.dtype
    # Said to the user when not empty: what a sample from this model is not.
    caution: str = ""
    # How passes are computed, and the model whose passes are not any coarser.
    precision: str = "float32"
    # Whether sequences of mixed lengths cost no padding.
    packs: bool = False
    exact: MaskedModel | None = None

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
        """Mask one position of each sequence and return its vector; models may do this faster."""
        masked = torch.arange(tokens.shape[1], device=tokens.device) == place[:, None]
        return self.hidden(Queries(tokens, lengths, masked, source))

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Return the model's own scores of its full vocabulary."""

    def logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Return the score of one token for each vector; models may do this cheaply."""
        return self.logits(hidden).gather(1, tokens[:, None]).squeeze(1)

    def in_precision(self, dtype: torch.dtype, coarse_products: bool = False) -> MaskedModel:
        """Return this model with its passes in another precision, the exact one beside it."""
        raise ModelError(f"'{self.name}' has no passes in another precision.")

    @property
    def hidden_width(self) -> int:
        """Width of the vector that a masked position is kept as."""
        return self.vocabulary_size

    @property
    @abstractmethod
    def bytes_per_token(self) -> int:
        """Working memory that one token of a batch needs, as a rough guide for batch sizes."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Turn a text into content tokens; blanks written as the mask become `mask_id`."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Turn content tokens into a text."""

    @abstractmethod
    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's spelling of each token."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of all that decides the model's answers: weights and vocabulary."""

    def control_ids(self) -> frozenset[int]:
        """Return the tokens that steer the model rather than stand for text; never in a text."""
        return frozenset()

    @property
    def vocabulary_size(self) -> int:
        """How many tokens the model scores."""
        return self.forbidden.shape[0]
