"""A masked LM's encoder, or decoder, evaluated at one token of each sequence.

A masked pass needs the hidden state at its masked token only. All layers but the last run at every
token; the last needs keys and values everywhere, but queries, products, feed-forward and norms at
the masked token only. Sequences are concatenated, so nothing is spent on padding.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from maskov.encoders import torch_operations
from maskov.encoders.blocks import (
    Block,
    EncoderNetwork,
    FeedForward,
    Memory,
    Packed,
    Reading,
    TokenLayout,
    Uniform,
    cast,
)
from maskov.encoders.families import UNSUPPORTED, Weights, describe, is_ordinary
from maskov.types import Float, Int, Tensor


class Encoder:
    """The encoder of a masked LM of a known family; it shares the network's weights.

    Sequences have at most `limit` tokens, special ones included.
    """

    def __init__(self, network: EncoderNetwork) -> None:
        self.network = network
        self.limit = network.limit

    @classmethod
    def of(cls, network: Any) -> Encoder | None:
        """Return the encoder of a Hugging Face masked LM, or None if its parts are not known.

        Whether it computes the same must be tried: third-party code may use a known family name for
        a different network.
        """
        try:
            if network.training or not is_ordinary(network.base_model):
                return None
            return cls(describe(network.config.to_dict(), Weights(network.state_dict())))
        except UNSUPPORTED:
            return None

    def to(self, dtype: torch.dtype) -> Encoder:
        """Return this encoder with weights in another dtype."""
        return Encoder(cast(self.network, dtype))

    @torch.no_grad()
    def memory(
        self,
        states: Float[Tensor, "tokens width"],
        starts: Int[Tensor, " texts"],
        sizes: Int[Tensor, " texts"],
    ) -> Memory:
        """Return the keys and values of concatenated source states, for every layer."""
        crosses = (block.cross for block in self.network.blocks if block.cross is not None)
        layers = tuple(one.memory(states.to(one.memory.weight.dtype)) for one in crosses)
        return Memory(layers, starts, sizes)

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
        network = self.network
        ops = operations(network.embedding.tokens)
        if isinstance(layout, Packed) and layout.longest > self.limit:
            # The bound may exceed the network's number of positions.
            layout = Packed(layout.starts, self.limit)
        plan = ops.plan(layout, ids.shape[0], ids.device)
        stream = ops.embed(network.embedding, ids, position, plan)
        value = stream if network.first is None else ops.norm(stream, network.first)
        read = None if reading is None else ops.read_plan(reading)
        *blocks, last = network.blocks
        for layer, block in enumerate(blocks):
            attended = ops.attend(block.qkv(value), block, network.heads, plan)
            stream, value = ops.join(
                block.out(attended), stream, block.after_attention, network.keeps_sum
            )
            if read is not None:
                stream, value = self._cross(ops, layer, block, stream, value, plan, read)
            stream, value = ops.join(
                _feed(ops, value, block.feed), stream, block.after_feed, network.keeps_sum
            )
        width = last.width
        if several:
            attended = ops.attend(last.qkv(value), last, network.heads, plan)
            if read is None:
                attended, stream = attended.index_select(0, query), stream.index_select(0, query)
        else:
            kv = last.qkv.rows(width, 3 * width)(value)
            q = last.qkv.rows(0, width)(value.index_select(0, query))
            attended = ops.attend_one(q, kv, query, last, network.heads, plan)
            stream = stream.index_select(0, query)
        stream, value = ops.join(
            last.out(attended), stream, last.after_attention, network.keeps_sum
        )
        if read is not None:
            if not several:
                plan = ops.plan(Uniform(len(query), 1), len(query), ids.device)
            stream, value = self._cross(ops, len(blocks), last, stream, value, plan, read)
            if several:
                stream, value = stream.index_select(0, query), value.index_select(0, query)
        _, value = ops.join(
            _feed(ops, value, last.feed), stream, last.after_feed, network.keeps_sum
        )
        hidden: Tensor = value
        return hidden

    def _cross(
        self,
        ops: Any,
        layer: int,
        block: Block,
        stream: Tensor,
        value: Tensor,
        plan: Any,
        read: Any,
    ) -> tuple[Tensor, Tensor]:
        """Add what the tokens read in their source."""
        cross = block.cross
        assert cross is not None
        attended = ops.cross(cross.query(value), layer, self.network.heads, plan, read)
        joined: tuple[Tensor, Tensor] = ops.join(
            cross.out(attended), stream, cross.after, self.network.keeps_sum
        )
        return joined


def _feed(
    ops: Any, x: Float[Tensor, "rows width"], feed: FeedForward
) -> Float[Tensor, "rows width"]:
    return feed.outer(ops.activate(feed.inner(x), feed))


_FUSED = frozenset({torch.bfloat16, torch.float16, torch.float32})


def operations(weight: Tensor) -> ModuleType:
    """Return `fused` if GPU, Triton and dtype allow it, else `torch_operations`.

    Both modules have the same functions.
    """
    fused = _fused() if weight.is_cuda and weight.dtype in _FUSED else None
    return torch_operations if fused is None else fused


@lru_cache(maxsize=1)
def _fused() -> ModuleType | None:
    try:
        return import_module("maskov.encoders.fused")
    except ImportError:  # Triton comes with torch, but not on every platform
        return None
