"""Models whose masked passes run in our own encoder: concatenated, without padding."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from maskov.encoders import Encoder, Packed, Reading, TokenLayout, Uniform
from maskov.errors import InputError, ModelError
from maskov.models.base import MaskedModel, Queries, coarse
from maskov.models.tokens import token_ids
from maskov.types import Bool, Float, Int, Tensor

# A place that no sequence has.
_NOWHERE = 2**30


@dataclass(frozen=True)
class Frame:
    """The special tokens before and after a text, and the mask token."""

    before: Int[Tensor, " before"]
    after: Int[Tensor, " after"]
    mask_id: int

    @classmethod
    def of(
        cls, before: Sequence[int], after: Sequence[int], mask_id: int, device: torch.device
    ) -> Frame:
        """Return the frame of these tokens on a device."""
        first = torch.tensor(before, dtype=torch.long, device=device)
        return cls(first, torch.tensor(after, dtype=torch.long, device=device), mask_id)

    @property
    def size(self) -> int:
        """Number of tokens added to each sequence."""
        return len(self.before) + len(self.after)


@dataclass(frozen=True)
class PackedPasses:
    """Concatenated masked passes: `starts` is where each begins, `query` where its masks are."""

    ids: Int[Tensor, " tokens"]
    position: Int[Tensor, " tokens"]
    starts: Int[Tensor, " bounds"]
    query: Int[Tensor, " queries"]


def pack_masked(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    masked: Bool[Tensor, "passes length"],
    frame: Frame,
) -> PackedPasses:
    """Mask any places of each sequence and concatenate them; `query` is in row-major order."""
    total = int(lengths.sum()) + len(tokens) * frame.size
    content = tokens.masked_fill(masked, frame.mask_id)
    packed = pack_passes(content, lengths, torch.full_like(lengths, _NOWHERE), frame, total)
    row, place = masked.nonzero(as_tuple=True)
    return replace(packed, query=packed.starts.long()[row] + len(frame.before) + place)


def pack_passes(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    place: Int[Tensor, " passes"],
    frame: Frame,
    total: int,
) -> PackedPasses:
    """Mask one place of each sequence and concatenate them into a row of `total` tokens.

    A sequence of length zero takes no room. Nothing synchronises with the device.
    """
    count, width = tokens.shape
    device = tokens.device
    full = torch.where(lengths > 0, lengths + frame.size, 0)
    ends = full.cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    token = torch.arange(total, device=device)
    owner = torch.searchsorted(ends, token, right=True).clamp(max=count - 1)
    offset = token - starts[owner]
    inner = offset - len(frame.before)
    ids = tokens[owner, inner.clamp(0, width - 1)]
    ids = torch.where(inner == place[owner], frame.mask_id, ids)
    if len(frame.before):
        ids = torch.where(inner < 0, frame.before[offset.clamp(0, len(frame.before) - 1)], ids)
    if len(frame.after):
        past = inner - lengths[owner]
        ids = torch.where(past >= 0, frame.after[past.clamp(0, len(frame.after) - 1)], ids)
    query = (starts[:-1] + len(frame.before) + place).clamp(0, total - 1)
    return PackedPasses(ids, offset, starts.int(), query)


# The share of its probability that every token keeps.
FLOOR = 0.01


def check_smoothing(share: float) -> None:
    """Refuse a share that no label smoothing has."""
    if not 0 <= share < 1:
        raise InputError(f"remove_smoothing must be at least 0 and below 1, not {share}.")


def without_smoothing(
    scores: Float[Tensor, "*positions tokens"],
    log_normaliser: Float[Tensor, "*positions 1"],
    share: float,
    vocabulary: int,
) -> Float[Tensor, "*positions tokens"]:
    """Return scores f' without the tail of a label smoothing `share` (ε).

        f'_i = f_i + log(max(1 − (ε/V) exp(L − f_i), FLOOR))

    `scores` f are those of any tokens, `log_normaliser` L is the log-sum-exp of all V tokens of the
    `vocabulary` that the training's softmax had. The softmax of f' is the distribution without the
    tail. Nothing waits for the device, and no shape depends on values.
    """
    tail = (log_normaliser - scores).exp() * (share / vocabulary)
    return scores + (1 - tail).clamp(min=FLOOR).log()


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
        the function of this name defines what is left. Energies and proposals both change.
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
        passes = pack_passes(tokens, lengths, place, self.frame, total)
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
