"""What an encoder is made of, whatever its family calls the parts.

Every family is one chain of the same two steps: something is added to a stream and the sum is
normed. Where norms come last (BERT), the normed sum is the stream; where they come first
(ModernBERT), the sum is, and the norm after a block is the one that the next block begins with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import torch
import torch.nn.functional as F

from maskov.types import Float, Tensor

Part = TypeVar("Part")


@dataclass(frozen=True)
class Affine:
    """A matrix product with an optional bias."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None

    def __call__(self, x: Float[Tensor, "rows in"]) -> Float[Tensor, "rows out"]:
        """Apply it to every row."""
        return F.linear(x, self.weight, self.bias)

    def rows(self, first: int, end: int) -> Affine:
        """Return the part that computes some of the outputs, without a copy."""
        bias = None if self.bias is None else self.bias[first:end]
        return Affine(self.weight[first:end], bias)


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm."""

    weight: Float[Tensor, " width"]
    bias: Float[Tensor, " width"] | None
    eps: float


@dataclass(frozen=True)
class Embedding:
    """Rows for tokens and, unless positions are rotary, for places; a norm; a projection."""

    tokens: Float[Tensor, "vocabulary width"]
    places: Float[Tensor, "places width"] | None
    norm: LayerNorm
    project: Affine | None = None


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines of a position's angles, kept in float32 whatever the weights are in."""

    cos: Float[Tensor, "places half"]
    sin: Float[Tensor, "places half"]


@dataclass(frozen=True)
class FeedForward:
    """Two products with an activation between them; `gated` ones multiply it by a second half.

    `activation` is the family's own function, or None for the usual exact GELU, which has kernels.
    """

    inner: Affine
    outer: Affine
    gated: bool
    activation: Callable[[Tensor], Tensor] | None


@dataclass(frozen=True)
class Block:
    """One layer: attention and feed-forward, each with the norm of the sum that follows it."""

    qkv: Affine
    out: Affine
    after_attention: LayerNorm
    feed: FeedForward
    after_feed: LayerNorm
    rotary: Rotary | None = None
    # A token sees others at most this far away.
    window: int | None = None

    @property
    def width(self) -> int:
        """How wide queries are, over all heads; keys and values are as wide."""
        return self.qkv.weight.shape[0] // 3


@dataclass(frozen=True)
class EncoderNetwork:
    """A whole encoder."""

    embedding: Embedding
    # The norm before the first block, where there is one.
    first: LayerNorm | None
    blocks: tuple[Block, ...]
    heads: int
    # Whether the sum goes on as the stream (norms first) or the normed sum does (norms last).
    keeps_sum: bool

    @property
    def limit(self) -> int:
        """How many tokens a sequence may have: as many as there are places."""
        tables = [block.rotary.cos for block in self.blocks if block.rotary is not None]
        if self.embedding.places is not None:
            tables.append(self.embedding.places)
        return min(len(table) for table in tables)


def cast(part: Part, dtype: torch.dtype) -> Part:
    """Return a description with all weights in another dtype; angles stay as exact as they are."""
    if isinstance(part, Rotary):
        return part
    if isinstance(part, Tensor):
        return part.to(dtype)  # type: ignore[return-value]
    if isinstance(part, tuple):
        return tuple(cast(one, dtype) for one in part)  # type: ignore[return-value]
    if is_dataclass(part) and not isinstance(part, type):
        changed = {f.name: cast(getattr(part, f.name), dtype) for f in fields(part)}
        return replace(part, **changed)
    return part
