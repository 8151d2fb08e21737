"""The parts of an encoder, under the same names for every family.

Every family repeats two steps: add to the residual stream, then normalise the sum. With post-norm
(BERT) the normalised sum becomes the stream; with pre-norm (ModernBERT) the sum does, and the norm
after a block is the one that the next block starts with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import torch
import torch.nn.functional as F

from maskov.types import Float, Int, Tensor

Part = TypeVar("Part")
Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Affine:
    """A matrix product with an optional bias."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None

    def __call__(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        """Apply the product to every row."""
        return F.linear(x, self.weight, self.bias)

    def rows(self, first: int, end: int) -> Affine:
        """Return the product restricted to some outputs, without a copy."""
        return Affine(self.weight[first:end], None if self.bias is None else self.bias[first:end])


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm."""

    weight: Float[Tensor, " width"]
    bias: Float[Tensor, " width"] | None
    eps: float


@dataclass(frozen=True)
class LMHead:
    """The projection onto the vocabulary, after a product, an activation and a norm if any."""

    weight: Float[Tensor, "vocabulary hidden"]
    bias: Float[Tensor, " vocabulary"] | None = None
    dense: Affine | None = None
    activation: Activation = F.gelu
    norm: LayerNorm | None = None

    def transform(self, states: Float[Tensor, "*n width"]) -> Float[Tensor, "*n hidden"]:
        """Apply all but the projection."""
        if self.dense is None or self.norm is None:
            return states
        x = self.activation(self.dense(states))
        return F.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)

    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Score the full vocabulary."""
        return F.linear(hidden, self.weight, self.bias)

    def logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Score one token per row, with one row of the projection."""
        score = (hidden * self.weight[tokens]).sum(-1)
        return score if self.bias is None else score + self.bias[tokens]


@dataclass(frozen=True)
class Embedding:
    """Embeddings of tokens and, unless positions are rotary, of positions; a norm; a projection."""

    tokens: Float[Tensor, "vocabulary width"]
    places: Float[Tensor, "places width"] | None
    norm: LayerNorm | None
    project: Affine | None = None


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines of the rotary angles, always in float32."""

    cos: Float[Tensor, "places half"]
    sin: Float[Tensor, "places half"]


@dataclass(frozen=True)
class FeedForward:
    """Two products with an activation between them; if `gated`, it is multiplied by a second half.

    The exact GELU, `F.gelu` itself, has its own kernels.
    """

    inner: Affine
    outer: Affine
    gated: bool = False
    activation: Activation = F.gelu


@dataclass(frozen=True)
class CrossAttention:
    """Attention of a decoder to a source text, and the norm that follows it.

    `memory` makes the keys and values of a source's states.
    """

    query: Affine
    memory: Affine
    out: Affine
    after: LayerNorm


@dataclass(frozen=True)
class Block:
    """One layer: attention and feed-forward, each with the norm that follows it."""

    qkv: Affine
    out: Affine
    after_attention: LayerNorm
    feed: FeedForward
    after_feed: LayerNorm
    rotary: Rotary | None = None
    # The largest distance that a token attends to.
    window: int | None = None
    # Between attention and feed-forward, in a decoder.
    cross: CrossAttention | None = None

    @property
    def width(self) -> int:
        """Width of queries, keys and values over all heads."""
        return self.qkv.weight.shape[0] // 3


def cast(part: Part, dtype: torch.dtype) -> Part:
    """Return a part with all weights in another dtype; rotary angles keep theirs."""
    if isinstance(part, Rotary):
        return part
    if isinstance(part, Tensor):
        return part.to(dtype)  # type: ignore[return-value]
    if isinstance(part, tuple):
        return tuple(cast(member, dtype) for member in part)  # type: ignore[return-value]
    if is_dataclass(part) and not isinstance(part, type):
        changed = {f.name: cast(getattr(part, f.name), dtype) for f in fields(part)}
        return replace(part, **changed)
    return part


@dataclass(frozen=True)
class Uniform:
    """`count` sequences of the same `width`, one after the other."""

    count: int
    width: int


@dataclass(frozen=True)
class Packed:
    """Concatenated sequences of mixed lengths.

    Sequence `i` has the tokens `starts[i]` to `starts[i + 1]`, so there is one start (int32) more
    than there are sequences. Empty sequences fill up a batch of fixed size, and tokens after the
    last sequence are ignored. `longest` bounds all lengths; it is a host integer because it decides
    how kernels are launched.
    """

    starts: Int[Tensor, " bounds"]
    longest: int


TokenLayout = Uniform | Packed


@dataclass(frozen=True)
class Memory:
    """Keys and values of the sources that a decoder reads, concatenated, one tensor per layer."""

    layers: tuple[Float[Tensor, "tokens two_width"], ...]
    starts: Int[Tensor, " texts"]
    sizes: Int[Tensor, " texts"]


@dataclass(frozen=True)
class Reading:
    """Which text of a memory each pass reads; `longest` bounds the sizes of these texts."""

    memory: Memory
    text: Int[Tensor, " passes"]
    longest: int
