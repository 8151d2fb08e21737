"""The encoder's operations in torch, for CPUs and for dtypes without Triton kernels.

Attention needs sequences of one width, so packed sequences are padded for it and gathered again,
with indices computed once per call. Nothing synchronises with the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from maskov.encoders.blocks import (
    Block,
    Embedding,
    FeedForward,
    LayerNorm,
    Memory,
    Reading,
    TokenLayout,
    Uniform,
)
from maskov.types import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class PaddedPlan:
    """A layout prepared for attention.

    If sequences have several widths, `block` and `back` are indices from packed tokens to a padded
    block and back, and `keys` says what is not padding.
    """

    count: int
    width: int
    start: Int[Tensor, " passes"]
    block: Int[Tensor, "passes longest"] | None = None
    back: Int[Tensor, " tokens"] | None = None
    keys: Bool[Tensor, "passes 1 1 longest"] | None = None


# The memory that passes read, where the keys of each lie, and a mask unless all are real.
PaddedReading = tuple[
    Memory, Int[Tensor, "passes longest"], Bool[Tensor, "passes 1 1 longest"] | None
]


def plan(layout: TokenLayout, tokens: int, device: torch.device) -> PaddedPlan:
    """Compute the indices that every layer needs."""
    if isinstance(layout, Uniform):
        start = torch.arange(0, tokens, layout.width, device=device)
        return PaddedPlan(layout.count, layout.width, start)
    starts, width = layout.starts.long(), layout.longest
    start, end = starts[:-1], starts[1:]
    place = torch.arange(width, device=device)
    inside = place < (end - start)[:, None]
    block = (start[:, None] + place).clamp(max=tokens - 1)
    # An empty sequence attends to anything, which avoids 0/0; its output is ignored.
    keys = (inside | (start == end)[:, None])[:, None, None]
    token = torch.arange(tokens, device=device)
    # The number of sequences that end at or before a token; later tokens are ignored.
    owner = torch.searchsorted(end.contiguous(), token, right=True).clamp(max=len(start) - 1)
    back = owner * width + (token - start[owner]).clamp(0, width - 1)
    return PaddedPlan(len(start), width, start, block, back, keys)


def read_plan(reading: Reading) -> PaddedReading:
    """Compute the indices of the keys that every layer reads."""
    memory, text = reading.memory, reading.text
    sizes, device = memory.sizes[text], text.device
    place = torch.arange(reading.longest, device=device)
    inside = place < sizes[:, None]
    block = torch.where(inside, memory.starts[text][:, None] + place, 0)
    unmasked = device.type == "cpu" and bool(inside.all())
    return memory, block, None if unmasked else inside[:, None, None]


def embed(
    embedding: Embedding,
    ids: Int[Tensor, " tokens"],
    position: Int[Tensor, " tokens"],
    plan: PaddedPlan,
) -> Float[Tensor, "tokens width"]:
    """Embed the tokens and their positions, add and normalise."""
    if plan.block is not None:
        # Tokens after the last sequence may be out of bounds.
        ids = ids.clamp(0, embedding.tokens.shape[0] - 1)
    x = F.embedding(ids, embedding.tokens)
    if embedding.places is not None:
        if plan.block is not None:
            position = position.clamp(0, embedding.places.shape[0] - 1)
        x += F.embedding(position, embedding.places)
    if embedding.norm is not None:
        x = norm(x, embedding.norm)
    return x if embedding.project is None else embedding.project(x)


def attend(
    qkv: Float[Tensor, "tokens three_width"], block: Block, heads: int, plan: PaddedPlan
) -> Float[Tensor, "tokens width"]:
    """Attend from every token to its sequence. Overwrites `qkv`."""
    wide = _padded(qkv, plan).view(plan.count, plan.width, 3, heads, -1)
    if block.rotary is not None:
        cos, sin = (t[: plan.width, None, None] for t in (block.rotary.cos, block.rotary.sin))
        _rotate(wide[:, :, :2], cos, sin)
    q, k, v = wide.permute(2, 0, 3, 1, 4).unbind()
    place = torch.arange(plan.width, device=qkv.device)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(place[None], block, plan))
    return _gathered(out, plan)


def attend_one(
    q: Float[Tensor, "passes width"],
    kv: Float[Tensor, "tokens two_width"],
    query: Int[Tensor, " passes"],
    block: Block,
    heads: int,
    plan: PaddedPlan,
) -> Float[Tensor, "passes width"]:
    """Attend from one token of each sequence to the sequence. Overwrites `q` and `kv`."""
    wide = _padded(kv, plan).view(plan.count, plan.width, 2, heads, -1)
    queries = q.view(plan.count, 1, heads, -1)
    place = (query - plan.start).clamp(0, plan.width - 1)
    if block.rotary is not None:
        cos, sin = block.rotary.cos, block.rotary.sin
        _rotate(queries, cos[place][:, None, None], sin[place][:, None, None])
        _rotate(wide[:, :, 0], cos[: plan.width, None], sin[: plan.width, None])
    k, v = wide.permute(2, 0, 3, 1, 4).unbind()
    mask = _mask(place[:, None], block, plan)
    out = F.scaled_dot_product_attention(queries.transpose(1, 2), k, v, attn_mask=mask)
    return out.reshape(plan.count, -1)


def cross(
    q: Float[Tensor, "tokens width"], layer: int, heads: int, plan: PaddedPlan, read: PaddedReading
) -> Float[Tensor, "tokens width"]:
    """Attend from every token to the source of its sequence."""
    queries = _padded(q, plan).view(plan.count, plan.width, heads, -1).transpose(1, 2)
    memory, block, keys = read
    wide = memory.layers[layer][block].view(*block.shape, 2, heads, -1)
    k, v = wide.permute(2, 0, 3, 1, 4).unbind()
    return _gathered(F.scaled_dot_product_attention(queries, k, v, attn_mask=keys), plan)


def norm(x: Float[Tensor, "rows width"], by: LayerNorm) -> Float[Tensor, "rows width"]:
    """Normalise every row."""
    return F.layer_norm(x, x.shape[1:], by.weight, by.bias, by.eps)


def join(
    change: Float[Tensor, "rows width"],
    stream: Float[Tensor, "rows width"],
    by: LayerNorm,
    keep: bool,
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, "rows width"]]:
    """Add to the stream; return the new stream and the normalised sum. Overwrites `change`."""
    total = change.add_(stream)
    value = norm(total, by)
    return (total, value) if keep else (value, value)


def activate(inner: Float[Tensor, "rows inner"], feed: FeedForward) -> Float[Tensor, "rows outer"]:
    """Apply the activation, and the gate if any. May overwrite `inner`."""
    if not feed.gated:
        return torch.ops.aten.gelu_(inner) if feed.activation is F.gelu else feed.activation(inner)
    left, gate = inner.chunk(2, dim=-1)
    out = feed.activation(left)
    return out * gate if out is left else out.mul_(gate)


def _padded(x: Float[Tensor, "tokens width"], plan: PaddedPlan) -> Float[Tensor, "... width"]:
    return x if plan.block is None else x[plan.block]


def _gathered(heads: Tensor, plan: PaddedPlan) -> Float[Tensor, "tokens width"]:
    out = heads.transpose(1, 2).reshape(plan.count * plan.width, -1)
    return out if plan.back is None else out.index_select(0, plan.back)


def _mask(
    place: Int[Tensor, "#passes queries"], block: Block, plan: PaddedPlan
) -> Bool[Tensor, "#passes 1 #queries keys"] | None:
    """Return which keys the queries at these places attend to, or None for all."""
    keys = plan.keys
    if block.window is None or block.window >= plan.width - 1:
        return keys
    key = torch.arange(plan.width, device=place.device)
    away = (place[:, :, None] - key).abs()[:, None]
    # Padding attends at least to itself, so that no row is without a key.
    return away <= block.window if keys is None else (away <= block.window) & keys | (away == 0)


def _rotate(
    x: Float[Tensor, "*x dim"],
    cos: Float[Tensor, "*angles half"],
    sin: Float[Tensor, "*angles half"],
) -> None:
    """Rotate the two halves of every head by the angles of its position, in place.

    Hugging Face computes this in float32 even for float64 models; so do we, to agree with it.
    """
    left, right = x.chunk(2, dim=-1)
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    a, b = left.float(), right.float()
    rotated = (a * cos).addcmul_(b, sin, value=-1) if wide == a.dtype else a * cos - b * sin
    right.copy_((b * cos).addcmul_(a, sin) if wide == a.dtype else b * cos + a * sin)
    left.copy_(rotated)
