"""The encoder's operations as Triton kernels, for GPUs, without padding.

The functions are those of `torch_operations`. Importing this needs Triton.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from maskov.encoders import torch_operations, triton_kernels as kernels
from maskov.encoders.blocks import (
    Block,
    Embedding,
    FeedForward,
    LayerNorm,
    Packed,
    Reading,
    TokenLayout,
    Uniform,
)
from maskov.types import Float, Int, Tensor

# Longer sequences are processed block by block.
_LARGEST = 128
_ELEMENTS = 2048
# Heads that one program of `attention` takes one after the other, where there are enough programs:
# the rows of the next heads are loaded meanwhile, and all heads share the angles. `_AHEAD` has, for
# each size of a block, the warps of such a program and how many of its heads are loaded at a time.
_HEADS_AT_ONCE, _MANY_PROGRAMS = (6, 4, 3, 2, 1), 2**13
_AHEAD = {16: (1, 3), 32: (1, 3), 64: (4, 3), 128: (4, 2)}
# Places that one program of `copy_vectors` looks at.
_PLACES = 16


class PackedPlan:
    """A packed layout and the buffer that attention writes to, the same in every layer.

    The buffer is zeroed once per call: tokens after the last sequence are never written, and must
    not hold uninitialised memory.
    """

    def __init__(self, layout: Packed, tokens: int) -> None:
        self.layout = layout
        self.tokens = tokens
        self._buffer: Tensor | None = None

    def buffer(self, like: Tensor, width: int) -> Float[Tensor, "tokens width"]:
        """Return the buffer, allocated on first use."""
        if self._buffer is None or self._buffer.shape[1] != width:
            self._buffer = like.new_zeros(self.tokens, width)
        return self._buffer


# A reading with the first key and the number of keys of every pass.
PackedReading = tuple[Reading, Int[Tensor, " passes"], Int[Tensor, " passes"]]


def plan(layout: TokenLayout, tokens: int, device: torch.device) -> PackedPlan:
    """Return the plan of a layout; a uniform one is turned into a packed one."""
    if isinstance(layout, Uniform):
        width = layout.width
        starts = torch.arange(layout.count + 1, device=device, dtype=torch.int32) * width
        layout = Packed(starts, width)
    return PackedPlan(layout, tokens)


def read_plan(reading: Reading) -> PackedReading:
    """Look up where the keys of every pass lie."""
    return reading, reading.memory.starts[reading.text], reading.memory.sizes[reading.text]


def embed(
    embedding: Embedding,
    ids: Int[Tensor, " tokens"],
    position: Int[Tensor, " tokens"],
    plan: PackedPlan,
) -> Float[Tensor, "tokens width"]:
    """Embed the tokens and their positions, add and normalise."""
    tokens, places, by = embedding.tokens, embedding.places, embedding.norm
    count, width = len(ids), tokens.shape[1]
    value = tokens.new_empty(count, width)
    weight = tokens if by is None else by.weight
    if count:
        kernels.embed_norm[(count,)](
            ids,
            position,
            tokens,
            tokens if places is None else places,
            weight,
            weight if by is None or by.bias is None else by.bias,
            value,
            0.0 if by is None else by.eps,
            tokens.shape[0],
            0 if places is None else places.shape[0],
            WIDTH=width,
            TILE=_power(width),
            PLACES=places is not None,
            NORM=by is not None,
            BIAS=by is not None and by.bias is not None,
            num_warps=_row_warps(width),
        )
    return value if embedding.project is None else embedding.project(value)


def attend(
    qkv: Float[Tensor, "tokens three_width"],
    block: Block,
    heads: int,
    plan: PackedPlan,
) -> Float[Tensor, "tokens width"]:
    """Attend from every token to its sequence."""
    layout, width = plan.layout, block.width
    out = plan.buffer(qkv, width)
    tile, warps = _tile(layout.longest, width // heads, qkv.dtype)
    programs, one_block = (len(layout.starts) - 1) * heads, layout.longest <= tile
    several = one_block and programs >= _MANY_PROGRAMS and qkv.dtype.itemsize == 2
    each = next(number for number in _HEADS_AT_ONCE if heads % number == 0) if several else 1
    warps, stages = _AHEAD[tile] if several else (warps, 1 if one_block else 2)
    grid = (programs // each, -(-layout.longest // tile))
    if grid[0]:
        kernels.attention[grid](
            qkv,
            out,
            layout.starts,
            *_angles(block, qkv),
            _scale(width // heads),
            **_heads(block, heads),
            QUERIES=tile,
            KEYS=tile,
            ONE_BLOCK=one_block,
            EACH=each,
            PRECISION=_precision(),
            num_warps=warps,
            num_stages=stages,
        )
    return out


def attend_one(
    q: Float[Tensor, "passes width"],
    kv: Float[Tensor, "tokens two_width"],
    query: Int[Tensor, " passes"],
    block: Block,
    heads: int,
    plan: PackedPlan,
) -> Float[Tensor, "passes width"]:
    """Attend from one token of each sequence to the sequence."""
    out = torch.empty_like(q)
    if len(q):
        kernels.attention_one[(len(q) * heads,)](
            q,
            kv,
            out,
            plan.layout.starts,
            query,
            *_angles(block, q),
            _scale(block.width // heads),
            **_heads(block, heads),
            KEYS=min(max(_power(plan.layout.longest), 16), 64),
            num_warps=2,
        )
    return out


def cross(
    q: Float[Tensor, "tokens width"], layer: int, heads: int, plan: PackedPlan, read: PackedReading
) -> Float[Tensor, "tokens width"]:
    """Attend from every token to the source of its sequence."""
    (reading, first, count), layout, width = read, plan.layout, q.shape[1]
    dim = width // heads
    out = plan.buffer(q, width)
    queries, warps = _tile(layout.longest, dim, q.dtype)
    keys, key_warps = _tile(reading.longest, dim, q.dtype)
    grid = ((len(layout.starts) - 1) * heads, -(-layout.longest // queries))
    if grid[0]:
        kernels.cross_attention[grid](
            q,
            reading.memory.layers[layer],
            out,
            layout.starts,
            first,
            count,
            _scale(dim),
            HEADS=heads,
            DIM=dim,
            DIM_TILE=max(_power(dim), 16),
            QUERIES=queries,
            KEYS=keys,
            ONE_BLOCK=reading.longest <= keys,
            PRECISION=_precision(),
            num_warps=max(warps, key_warps),
            num_stages=1 if reading.longest <= keys else 2,
        )
    return out


def norm(x: Float[Tensor, "rows width"], by: LayerNorm) -> Float[Tensor, "rows width"]:
    """Normalise every row."""
    value = torch.empty_like(x)
    _norm_into(value, x, None, by, keep=False)
    return value


def join(
    change: Float[Tensor, "rows width"],
    stream: Float[Tensor, "rows width"],
    by: LayerNorm,
    keep: bool,
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, "rows width"]]:
    """Add to the stream; return the new stream and the normalised sum. Overwrites `change`."""
    value = torch.empty_like(change) if keep else change
    _norm_into(value, change, stream, by, keep)
    return (change, value) if keep else (value, value)


def activate(inner: Float[Tensor, "rows inner"], feed: FeedForward) -> Float[Tensor, "rows outer"]:
    """Apply the activation, and the gate if any. May overwrite `inner`."""
    if feed.activation is not F.gelu:
        return torch_operations.activate(inner, feed)
    rows, width = inner.shape[0], inner.shape[1] // (2 if feed.gated else 1)
    grid = (-(-rows * width // _ELEMENTS),)
    if not grid[0]:
        return inner[:, :width]
    if not feed.gated:
        kernels.gelu[grid](inner, rows * width, TILE=_ELEMENTS, num_warps=8)
        return inner
    out = inner.new_empty(rows, width)
    kernels.gated_gelu[grid](inner, out, rows * width, WIDTH=width, TILE=_ELEMENTS, num_warps=8)
    return out


def _tile(longest: int, dim: int, dtype: torch.dtype) -> tuple[int, int]:
    """Return the size of a block that holds the longest sequence, if it fits, and its warps."""
    largest = _LARGEST if dtype.itemsize == 2 and dim <= 64 else _LARGEST // 2
    size = min(max(_power(longest), 16), largest)
    return size, {16: 1, 32: 2, 64: 4, 128: 8}[size]


def _norm_into(value: Tensor, x: Tensor, stream: Tensor | None, by: LayerNorm, keep: bool) -> None:
    rows, width = x.shape
    if rows:
        kernels.add_norm[(rows,)](
            x,
            x if stream is None else stream,
            by.weight,
            by.weight if by.bias is None else by.bias,
            value,
            by.eps,
            WIDTH=width,
            TILE=_power(width),
            ADD=stream is not None,
            KEEP=keep,
            BIAS=by.bias is not None,
            num_warps=_row_warps(width),
        )


def _heads(block: Block, heads: int) -> dict[str, Any]:
    """Return the compile-time sizes of attention; Triton products need at least 16 columns."""
    dim = block.width // heads
    return {
        "HEADS": heads,
        "DIM": dim,
        "DIM_TILE": max(_power(dim), 16),
        "HALF_TILE": max(_power(dim // 2), 16),
        "ROTARY": block.rotary is not None,
        "WINDOW": -1 if block.window is None else block.window,
    }


def _angles(block: Block, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tables of angles; without rotary positions, placeholders that are not read."""
    return (other, other) if block.rotary is None else (block.rotary.cos, block.rotary.sin)


def _scale(dim: int) -> float:
    """Return the scale of attention scores, for exponentials to base 2."""
    return math.log2(math.e) / math.sqrt(dim)


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _power(size: int) -> int:
    """Return the next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def _row_warps(width: int) -> int:
    return min(max(_power(width) // 512, 1), 8)


def copy_vectors(target: Tensor, source: Tensor, chosen: Tensor, row: Tensor) -> None:
    """Set `target[chain, place]` to `source[row[chain], place]` where it is `chosen`.

    The other vectors are not even read.
    """
    chains, length, width = target.shape
    if not chains:
        return
    tile = 1 << (width - 1).bit_length()
    grid = (chains, -(-length // _PLACES))
    kernels.copy_vectors[grid](
        target, source, chosen.view(torch.uint8), row, length, source.stride(0),
        WIDTH=width, TILE=tile, PLACES=_PLACES, num_warps=min(max(tile // 256, 1), 8),
    )  # fmt: skip
