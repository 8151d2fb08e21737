"""A masked LM's encoder, or decoder, evaluated at one token of each sequence.

A masked pass needs the hidden state at its masked token only. All layers but the last run at every
token; the last needs keys and values everywhere, but queries, products, feed-forward and norms at
the masked token only. Sequences are concatenated, so nothing is spent on padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from maskov.encoders import torch_operations
from maskov.encoders.blocks import (
    Block,
    Embedding,
    LayerNorm,
    Packed,
    Reading,
    TokenLayout,
    Uniform,
)
from maskov.types import Float, Int, Tensor


@dataclass(frozen=True)
class Encoder:
    """The encoder of a masked LM of a known family, or a decoder without a causal mask."""

    embedding: Embedding
    # The norm before the first block, if any.
    first: LayerNorm | None
    blocks: tuple[Block, ...]
    heads: int
    # Whether the stream is the sum (pre-norm) or the normalised sum (post-norm).
    keeps_sum: bool

    @property
    def limit(self) -> int:
        """Maximum number of tokens in a sequence, special ones included."""
        tables = [block.rotary.cos for block in self.blocks if block.rotary is not None]
        if self.embedding.places is not None:
            tables.append(self.embedding.places)
        return min(map(len, tables))

    @torch.no_grad()
    def __call__(
        self,
        ids: Int[Tensor, " tokens"],
        position: Int[Tensor, " tokens"],
        layout: TokenLayout,
        query: Int[Tensor, " queries"],
        several: bool = False,
        reading: Reading | None = None,
    ) -> Float[Tensor, "queries hidden"]:
        """Return the encoder's last hidden state at one token of each sequence.

        `position` counts from zero in each sequence; `query` indexes `ids`. With `several` it may
        name any tokens, any number of them in a sequence. A decoder needs `reading`. Nothing
        synchronises with the device, and no shape depends on device data.
        """
        heads, keep = self.heads, self.keeps_sum
        ops = operations(self.embedding.tokens)
        if isinstance(layout, Packed) and layout.longest > self.limit:
            # The bound may exceed the encoder's number of positions.
            layout = Packed(layout.starts, self.limit)
        plan = ops.plan(layout, ids.shape[0], ids.device)
        stream = ops.embed(self.embedding, ids, position, plan)
        value: Tensor = stream if self.first is None else ops.norm(stream, self.first)
        read = None if reading is None else ops.read_plan(reading)
        for layer, block in enumerate(self.blocks):
            last = layer == len(self.blocks) - 1
            if last and not several:
                kv = block.qkv.rows(block.width, 3 * block.width)(value)
                q = block.qkv.rows(0, block.width)(value.index_select(0, query))
                attended = ops.attend_one(q, kv, query, block, heads, plan)
                stream = stream.index_select(0, query)
            else:
                attended = ops.attend(block.qkv(value), block, heads, plan)
            if last and several and block.cross is None:
                attended, stream = attended.index_select(0, query), stream.index_select(0, query)
            stream, value = ops.join(block.out(attended), stream, block.after_attention, keep)
            if block.cross is not None:
                if last and not several:
                    plan = ops.plan(Uniform(len(query), 1), len(query), ids.device)
                attended = ops.cross(block.cross.query(value), layer, heads, plan, read)
                stream, value = ops.join(block.cross.out(attended), stream, block.cross.after, keep)
                if last and several:
                    stream, value = stream.index_select(0, query), value.index_select(0, query)
            fed = block.feed.outer(ops.activate(block.feed.inner(value), block.feed))
            stream, value = ops.join(fed, stream, block.after_feed, keep)
        return value


_FUSED = frozenset({torch.bfloat16, torch.float16, torch.float32})


def operations(weight: Tensor) -> ModuleType:
    """Return `fused` if GPU, Triton and dtype allow it, else `torch_operations`.

    Both modules have the same functions.
    """
    return _fused() if weight.is_cuda and weight.dtype in _FUSED else torch_operations


@cache
def _fused() -> ModuleType:
    try:
        return import_module("maskov.encoders.fused")
    except ImportError:  # Triton comes with torch, but not on every platform
        return torch_operations
