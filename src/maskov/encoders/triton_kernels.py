# mypy: ignore-errors
# ruff: noqa: N803, N806 - compile-time constants are in capitals, as is usual in Triton
"""Triton kernels of the encoder: packed attention, sums with norms, embeddings, activations.

`cross_attention` is that of a decoder to its source.

All statistics, angles and softmaxes are in float32. `starts` locates the sequences; a program
whose block of queries lies beyond its sequence does nothing. Offsets have 64 bits, because a
buffer may hold more than 2^31 elements.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Finite, so that a row without keys gives no inf - inf.
LOWEST = tl.constexpr(-1.0e30)
INVERSE_ROOT_2 = tl.constexpr(0.7071067811865476)


@triton.jit
def _tile(base, row, inside, column, STRIDE: tl.constexpr, SIZE: tl.constexpr):
    """Load some columns of some rows; zero outside."""
    at = base + row[:, None] * STRIDE + column[None, :]
    return tl.load(at, mask=inside[:, None] & (column < SIZE)[None, :], other=0.0)


@triton.jit
def _rotated(base, c, s, row, inside, column, STRIDE: tl.constexpr, HALF: tl.constexpr):
    """Load both halves of a head and rotate them by the angles of their places."""
    left = _tile(base, row, inside, column, STRIDE, HALF)
    right = _tile(base + HALF, row, inside, column, STRIDE, HALF)
    a = left.to(tl.float32)
    b = right.to(tl.float32)
    return (a * c - b * s).to(left.dtype), (b * c + a * s).to(left.dtype)


@triton.jit
def _weigh(scores, v, top, total, sums, seen, PRECISION: tl.constexpr):
    """Add a block of keys to a running softmax (in base 2)."""
    scores = tl.where(seen, scores, LOWEST)
    higher = tl.maximum(top, tl.max(scores, 1))
    weight = tl.where(seen, tl.exp2(scores - higher[:, None]), 0.0)
    shrink = tl.exp2(top - higher)
    total = total * shrink + tl.sum(weight, 1)
    sums = sums * shrink[:, None]
    sums = tl.dot(weight.to(v.dtype), v, sums, input_precision=PRECISION)
    return higher, total, sums


@triton.jit
def attention(
    qkv,
    out,
    starts,
    cos,
    sin,
    scale,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_TILE: tl.constexpr,
    HALF_TILE: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    EACH: tl.constexpr,
    ROTARY: tl.constexpr,
    WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend from a block of queries of EACH heads to their sequence; `scale` is for base 2."""
    # Heads vary fastest: adjacent programs read adjacent parts of the same rows.
    sequence = tl.program_id(0) // (HEADS // EACH)
    first_head = tl.program_id(0) % (HEADS // EACH) * EACH
    first = tl.program_id(1) * QUERIES
    start = tl.load(starts + sequence).to(tl.int64)
    length = (tl.load(starts + sequence + 1) - start).to(tl.int32)
    if first >= length:
        return
    WIDTH: tl.constexpr = HEADS * DIM
    STRIDE: tl.constexpr = 3 * WIDTH
    HALF: tl.constexpr = DIM // 2
    place = first + tl.arange(0, QUERIES)
    there = place < length
    column = tl.arange(0, DIM_TILE)
    half = tl.arange(0, HALF_TILE)
    if ROTARY:
        c = _tile(cos, place, there, half, HALF, HALF)
        s = _tile(sin, place, there, half, HALF, HALF)
    low = 0
    high = length
    if WINDOW >= 0:
        low = tl.maximum(first - WINDOW, 0) // KEYS * KEYS
        high = tl.minimum(length, first + QUERIES + WINDOW)
    if ONE_BLOCK:
        # Every sequence fits into one block of keys: the compiler removes the loop.
        low = 0
        high = 1
    for head in range(first_head, first_head + EACH):
        q_base = qkv + start * STRIDE + head * DIM
        k_base = q_base + WIDTH
        v_base = k_base + WIDTH
        if ROTARY:
            q_left, q_right = _rotated(q_base, c, s, place, there, half, STRIDE, HALF)
        else:
            q = _tile(q_base, place, there, column, STRIDE, DIM)
        top = tl.full([QUERIES], LOWEST, tl.float32)
        total = tl.zeros([QUERIES], tl.float32)
        sums = tl.zeros([QUERIES, DIM_TILE], tl.float32)
        for begin in range(low, high, KEYS):
            key = begin + tl.arange(0, KEYS)
            inside = key < length
            if ROTARY:
                if ONE_BLOCK:  # the places of the queries are those of the keys
                    k_c = c
                    k_s = s
                else:
                    k_c = _tile(cos, key, inside, half, HALF, HALF)
                    k_s = _tile(sin, key, inside, half, HALF, HALF)
                k_left, k_right = _rotated(k_base, k_c, k_s, key, inside, half, STRIDE, HALF)
                scores = tl.dot(q_left, tl.trans(k_left), input_precision=PRECISION)
                scores = tl.dot(q_right, tl.trans(k_right), scores, input_precision=PRECISION)
            else:
                k = _tile(k_base, key, inside, column, STRIDE, DIM)
                scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            v = _tile(v_base, key, inside, column, STRIDE, DIM)
            seen = inside[None, :]
            if WINDOW >= 0:
                away = place[:, None] - key[None, :]
                seen = seen & (away <= WINDOW) & (away >= -WINDOW)
            top, total, sums = _weigh(scores * scale, v, top, total, sums, seen, PRECISION)
        total = tl.where(total > 0.0, total, 1.0)
        at = out + (start + place[:, None]) * WIDTH + head * DIM + column[None, :]
        result = (sums / total[:, None]).to(out.dtype.element_ty)
        tl.store(at, result, mask=there[:, None] & (column < DIM)[None, :])


@triton.jit
def cross_attention(
    q,
    kv,
    out,
    starts,
    firsts,
    counts,
    scale,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_TILE: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend from a block of queries of one head to the source of their sequence."""
    sequence = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    first = tl.program_id(1) * QUERIES
    start = tl.load(starts + sequence).to(tl.int64)
    length = (tl.load(starts + sequence + 1) - start).to(tl.int32)
    if first >= length:
        return
    WIDTH: tl.constexpr = HEADS * DIM
    STRIDE: tl.constexpr = 2 * WIDTH
    place = first + tl.arange(0, QUERIES)
    there = place < length
    column = tl.arange(0, DIM_TILE)
    query = _tile(q + start * WIDTH + head * DIM, place, there, column, WIDTH, DIM)
    k_base = kv + tl.load(firsts + sequence).to(tl.int64) * STRIDE + head * DIM
    v_base = k_base + WIDTH
    count = tl.load(counts + sequence).to(tl.int32)
    top = tl.full([QUERIES], LOWEST, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, DIM_TILE], tl.float32)
    high = count
    if ONE_BLOCK:
        high = 1
    for begin in range(0, high, KEYS):
        key = begin + tl.arange(0, KEYS)
        inside = key < count
        k = _tile(k_base, key, inside, column, STRIDE, DIM)
        scores = tl.dot(query, tl.trans(k), input_precision=PRECISION)
        v = _tile(v_base, key, inside, column, STRIDE, DIM)
        seen = inside[None, :]
        top, total, sums = _weigh(scores * scale, v, top, total, sums, seen, PRECISION)
    total = tl.where(total > 0.0, total, 1.0)
    at = out + (start + place[:, None]) * WIDTH + head * DIM + column[None, :]
    result = (sums / total[:, None]).to(out.dtype.element_ty)
    tl.store(at, result, mask=there[:, None] & (column < DIM)[None, :])


@triton.jit
def attention_one(
    q,
    kv,
    out,
    starts,
    query,
    cos,
    sin,
    scale,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_TILE: tl.constexpr,
    HALF_TILE: tl.constexpr,
    KEYS: tl.constexpr,
    ROTARY: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Attend from one query of a sequence, for one head; an empty sequence gives zeros."""
    sequence = (tl.program_id(0) // HEADS).to(tl.int64)
    head = tl.program_id(0) % HEADS
    start = tl.load(starts + sequence).to(tl.int64)
    length = (tl.load(starts + sequence + 1) - start).to(tl.int32)
    WIDTH: tl.constexpr = HEADS * DIM
    STRIDE: tl.constexpr = 2 * WIDTH
    HALF: tl.constexpr = DIM // 2
    # The query of an empty sequence may be anything; it has no keys.
    place = (tl.load(query + sequence) - start).to(tl.int32)
    place = tl.minimum(tl.maximum(place, 0), tl.maximum(length - 1, 0))
    q_base = q + sequence * WIDTH + head * DIM
    k_base = kv + start * STRIDE + head * DIM
    v_base = k_base + WIDTH
    column = tl.arange(0, DIM_TILE)
    half = tl.arange(0, HALF_TILE)
    if ROTARY:
        a = tl.load(q_base + half, mask=half < HALF, other=0.0).to(tl.float32)
        b = tl.load(q_base + HALF + half, mask=half < HALF, other=0.0).to(tl.float32)
        c = tl.load(cos + place * HALF + half, mask=half < HALF, other=0.0)
        s = tl.load(sin + place * HALF + half, mask=half < HALF, other=0.0)
        # Rounded as the keys are, so that `attention` gives the same result.
        q_left = (a * c - b * s).to(q.dtype.element_ty).to(tl.float32)
        q_right = (b * c + a * s).to(q.dtype.element_ty).to(tl.float32)
    else:
        row = tl.load(q_base + column, mask=column < DIM, other=0.0).to(tl.float32)
    top = LOWEST + tl.zeros([1], tl.float32)
    total = tl.zeros([1], tl.float32)
    sums = tl.zeros([DIM_TILE], tl.float32)
    low = 0
    high = length
    if WINDOW >= 0:
        low = tl.maximum(place - WINDOW, 0)
        high = tl.minimum(length, place + WINDOW + 1)
    for begin in range(low, high, KEYS):
        key = begin + tl.arange(0, KEYS)
        inside = key < high
        if ROTARY:
            k_c = _tile(cos, key, inside, half, HALF, HALF)
            k_s = _tile(sin, key, inside, half, HALF, HALF)
            k_left, k_right = _rotated(k_base, k_c, k_s, key, inside, half, STRIDE, HALF)
            products = k_left.to(tl.float32) * q_left[None, :]
            products += k_right.to(tl.float32) * q_right[None, :]
        else:
            k = _tile(k_base, key, inside, column, STRIDE, DIM)
            products = k.to(tl.float32) * row[None, :]
        v = _tile(v_base, key, inside, column, STRIDE, DIM).to(tl.float32)
        scores = tl.where(inside, tl.sum(products, 1) * scale, LOWEST)
        higher = tl.maximum(top, tl.max(scores, 0))
        weight = tl.where(inside, tl.exp2(scores - higher), 0.0)
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weight, 0)
        sums = sums * shrink + tl.sum(weight[:, None] * v, 0)
        top = higher
    total = tl.where(total > 0.0, total, 1.0)
    at = out + sequence * WIDTH + head * DIM + column
    tl.store(at, (sums / total).to(out.dtype.element_ty), mask=column < DIM)


@triton.jit
def _normed(x, weight, bias, column, inside, eps, WIDTH: tl.constexpr, BIAS: tl.constexpr):
    mean = tl.sum(x, 0) / WIDTH
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / WIDTH
    y = centred * tl.rsqrt(variance + eps)
    y *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        y += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    return y


@triton.jit
def add_norm(
    change,
    stream,
    weight,
    bias,
    value,
    eps,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    ADD: tl.constexpr,
    KEEP: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Normalise a row of `change`; ADD adds `stream` first, KEEP stores the sum in `change`."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    column = tl.arange(0, TILE)
    inside = column < WIDTH
    x = tl.load(change + row + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(stream + row + column, mask=inside, other=0.0).to(tl.float32)
    if KEEP:
        tl.store(change + row + column, x.to(change.dtype.element_ty), mask=inside)
    y = _normed(x, weight, bias, column, inside, eps, WIDTH, BIAS)
    tl.store(value + row + column, y.to(value.dtype.element_ty), mask=inside)


@triton.jit
def embed_norm(
    ids,
    position,
    tokens,
    places,
    weight,
    bias,
    value,
    eps,
    vocabulary,
    limit,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PLACES: tl.constexpr,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Embed a token and its position, add and normalise; indices are clamped to their tables."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    inside = column < WIDTH
    which = tl.load(ids + token).to(tl.int64)
    which = tl.minimum(tl.maximum(which, 0), vocabulary - 1)
    x = tl.load(tokens + which * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    if PLACES:
        where = tl.load(position + token).to(tl.int64)
        where = tl.minimum(tl.maximum(where, 0), limit - 1)
        x += tl.load(places + where * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        x = _normed(x, weight, bias, column, inside, eps, WIDTH, BIAS)
    tl.store(value + token * WIDTH + column, x.to(value.dtype.element_ty), mask=inside)


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * INVERSE_ROOT_2))


@triton.jit
def gelu(x, count, TILE: tl.constexpr):
    """Apply the exact GELU in place."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < count
    value = tl.load(x + at, mask=inside, other=0.0)
    tl.store(x + at, _gelu(value.to(tl.float32)).to(value.dtype), mask=inside)


@triton.jit
def gated_gelu(x, out, count, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Multiply the exact GELU of the first half of each row by the second half."""
    # Within a program offsets have 32 bits: a division of 64 bits for each element would be slow.
    first = tl.program_id(0).to(tl.int64) * TILE
    place = tl.arange(0, TILE)
    inside = first + place < count
    begin = first // WIDTH
    column = (first - begin * WIDTH).to(tl.int32) + place
    source = x + begin * (2 * WIDTH) + column + column // WIDTH * WIDTH
    value = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(source + WIDTH, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + first + place, (_gelu(value) * gate).to(out.dtype.element_ty), mask=inside)


@triton.jit
def copy_vectors(
    target,
    source,
    chosen,
    row,
    length,
    source_row,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Copy the chosen vectors of some places of a chain."""
    chain = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * PLACES
    column = tl.arange(0, TILE)
    inside = column < WIDTH
    base = source + tl.load(row + chain) * source_row
    for place in range(first, tl.minimum(first + PLACES, length)):
        if tl.load(chosen + chain * length + place):
            vector = tl.load(base + place * WIDTH + column, mask=inside)
            tl.store(target + (chain * length + place) * WIDTH + column, vector, mask=inside)
