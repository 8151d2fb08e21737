"""Models whose masked passes run in our own encoder: concatenated, without padding."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from maskov.encoders import Encoder, Packed, Reading, TokenLayout, Uniform
from maskov.errors import InputError, ModelError
from maskov.models.base import MaskedModel, Queries
from maskov.models.packing import Frame, PackedPasses, pack, pack_masked
from maskov.models.precision import coarse
from maskov.models.smoothing import check_smoothing, without_smoothing
from maskov.models.tokenizing import token_ids
from maskov.types import Float, Int, Tensor

M = TypeVar("M", bound="PackedModel")


class TokenizedModel(MaskedModel):
    """A masked model with a tokenizer."""

    tokenizer: Any

    def encode(self, text: str) -> list[int]:
        """Tokenise without special tokens; [MASK] becomes this model's mask."""
        text = text.replace("[MASK]", self.tokenizer.mask_token)
        ids = token_ids(self.tokenizer, text, self.name, add_special_tokens=False)
        return [int(i) for i in ids]

    def token_spans(self, text: str) -> list[tuple[int, int]] | None:
        """Ask the tokenizer, if it knows where its tokens are from."""
        if not getattr(self.tokenizer, "is_fast", False):
            return super().token_spans(text)
        spans = token_ids(
            self.tokenizer, text, self.name, "offset_mapping",
            add_special_tokens=False, return_offsets_mapping=True,
        )  # fmt: skip
        return [(end - len(text[start:end].lstrip()), end) for start, end in spans]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode with the tokenizer."""
        text: str = self.tokenizer.decode([int(i) for i in ids])
        return text.strip()

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's spelling of each token."""
        return [str(t) for t in self.tokenizer.convert_ids_to_tokens([int(i) for i in ids])]

    def control_ids(self) -> frozenset[int]:
        """Return all special tokens but the unknown one, which may occur in a scored text."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}


class PackedModel(TokenizedModel):
    """A model with maskov's encoder, the tokens around each sequence, and its own head."""

    encoder: Encoder | None
    frame: Frame
    # Whether float32 matrix products may use TF32.
    coarse_products: bool = False

    @abstractmethod
    def project(self, states: Float[Tensor, "masked width"]) -> Float[Tensor, "masked hidden"]:
        """Turn the encoder's states at the masks into the vectors that chains cache."""

    @abstractmethod
    def trained_logits(
        self, hidden: Float[Tensor, "masked hidden"]
    ) -> Float[Tensor, "masked vocabulary"]:
        """Return the scores of the full vocabulary as the network was trained to give them."""

    @abstractmethod
    def trained_logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Return the score of one token for each vector, as the network was trained to give it."""

    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Return the scores of the full vocabulary, without label smoothing if that is removed."""
        scores = self.trained_logits(hidden)
        if not self.remove_smoothing:
            return scores
        return self._without_smoothing(scores, scores.logsumexp(1, keepdim=True))

    def logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Return the score of one token for each vector.

        To remove label smoothing takes the scores of all tokens, which are computed in portions.
        """
        if not self.remove_smoothing:
            return self.trained_logit_of(hidden, tokens)
        columns = []
        parts = (torch.split(values, self.head_rows) for values in (hidden, tokens))
        for part, token in zip(*parts, strict=True):
            scores = self.trained_logits(part)
            total = scores.logsumexp(1, keepdim=True)
            columns.append(self._without_smoothing(scores.gather(1, token[:, None]), total))
        return torch.cat(columns).squeeze(1)

    def _without_smoothing(self, scores: Tensor, log_normaliser: Tensor) -> Tensor:
        return without_smoothing(
            scores, log_normaliser, self.remove_smoothing, self.vocabulary_size
        )

    def without_smoothing(self: M, share: float) -> M:
        """Return this model with the label smoothing of its training removed.

        `share` is what the training spread over the vocabulary, such as 0.1;
        `maskov.models.smoothing` defines what is left. Energies and proposals both change.
        """
        check_smoothing(share)
        if not share:
            return self
        if self.remove_smoothing:
            raise InputError(
                f"label smoothing is removed from '{self.name}' already: {self.remove_smoothing:g}."
            )
        changed = copy.copy(self)
        changed.remove_smoothing = float(share)
        if isinstance(self.exact, PackedModel):
            changed.exact = self.exact.without_smoothing(share)
        return changed

    def _identity(self) -> dict[str, Any]:
        """Return what the fingerprint holds besides weights and inputs."""
        return {"remove_smoothing": self.remove_smoothing} if self.remove_smoothing else {}

    def reading(self, source: Int[Tensor, " passes"] | None) -> Reading | None:
        """Return what passes read besides their own tokens; nothing, unless it is overridden."""
        return None

    def hidden_at(
        self,
        tokens: Int[Tensor, "passes length"],
        lengths: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        source: Int[Tensor, " passes"] | None = None,
    ) -> Float[Tensor, "passes hidden"]:
        """Mask one place of each sequence; the last layer runs there alone."""
        if self.encoder is None:
            return super().hidden_at(tokens, lengths, place, source)
        total = int(lengths.sum()) + len(tokens) * self.frame.size
        passes = pack(tokens, lengths, place, self.frame, total)
        layout = self._layout(passes, lengths, tokens.shape[1])
        return self._encoded(passes, layout, source)

    def hidden_of(
        self,
        passes: PackedPasses,
        longest: int,
        source: Int[Tensor, " passes"] | None = None,
    ) -> Float[Tensor, "passes hidden"]:
        """Return the vector at the mask of each packed pass, without device synchronisation."""
        return self._encoded(passes, Packed(passes.starts, longest), source)

    def hidden_packed(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Run queries that mask any number of positions each."""
        passes = pack_masked(queries.tokens, queries.lengths, queries.masked, self.frame)
        layout = self._layout(passes, queries.lengths, queries.tokens.shape[1])
        return self._encoded(passes, layout, queries.source, several=True)

    def _layout(self, passes: PackedPasses, lengths: Tensor, width: int) -> TokenLayout:
        full = width + self.frame.size
        if self.device.type == "cpu" and bool((lengths == width).all()):
            # Attention on a CPU is faster if nothing has to be padded for it.
            return Uniform(len(lengths), full)
        return Packed(passes.starts, full)

    def _encoded(
        self,
        passes: PackedPasses,
        layout: TokenLayout,
        source: Tensor | None,
        several: bool = False,
    ) -> Tensor:
        if self.encoder is None:
            raise ModelError(f"the passes of '{self.name}' cannot be packed.")
        with coarse(self.coarse_products):
            states = self.encoder(
                passes.ids, passes.position, layout, passes.query, several, self.reading(source)
            )
            return self.project(states)
