"""The Triton kernels against plain torch, and the whole encoder in a CUDA graph.

They run on a GPU; with TRITON_INTERPRET=1 (and numpy before 2.4) most run without one, slowly.
"""

import os

import pytest
import torch

import maskov.encoders.encoder as operations
from encoders.tiny_encoders import FAMILIES, build, packed, places
from maskov.encoders import Memory, Packed, Reading, Uniform, cast, torch_operations
from maskov.encoders.blocks import Affine, Block, Embedding, FeedForward, LayerNorm, Rotary
from maskov.encoders.families import encoder_of
from maskov.moves import MaskedConditional
from maskov.random import categorical

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("there is no GPU here", allow_module_level=True)
fused = pytest.importorskip("maskov.encoders.fused")
triton_draws = pytest.importorskip("maskov.triton_draws")
pytestmark = [
    # Some versions of torch would rather have this set by another name.
    pytest.mark.filterwarnings("ignore:Please use the new API settings:UserWarning"),
    # Raised by Triton's interpreter.
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DTYPES = [dtype for dtype in TOLERANCE if dtype != torch.float64]
LENGTHS = [1, 7, 0, 16, 17, 31, 0, 33, 64]
LONG = [1, 65, 130, 0, 128, 97]


@pytest.fixture(autouse=True)
def _no_coarse_products():
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def _noise(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def _block(width, dim, window=None, rotary=False):
    empty = Affine(torch.empty(3 * width, 1), None)
    norm = LayerNorm(torch.empty(1), None, 1e-5)
    feed = FeedForward(empty, empty)
    angle = torch.arange(256)[:, None] * torch.logspace(0, -3, dim // 2)
    table = Rotary(angle.cos().to(DEVICE), angle.sin().to(DEVICE)) if rotary else None
    return Block(empty, empty, norm, feed, norm, table, window)


def _starts(lengths):
    starts = torch.tensor([0, *lengths]).cumsum(0)
    return starts.int().to(DEVICE), int(starts[-1])


def _close(ours, theirs, dtype):
    scale = theirs.abs().max()
    assert ours.isfinite().all()
    assert (ours.double() - theirs).abs().max() <= TOLERANCE[dtype] * scale


CASES = [
    (64, LENGTHS, None, False),
    (64, LENGTHS, 3, True),
    (64, LENGTHS, None, True),
    (16, LENGTHS, None, True),
    (32, LENGTHS, 5, False),
    (48, LENGTHS, None, True),
    (80, LENGTHS, None, False),
    (96, LENGTHS, 8, True),
    (128, LENGTHS, None, True),
    (64, LONG, None, True),
    (64, LONG, None, False),
    (64, [1, 128, 0, 65], None, False),
    (32, LONG, 9, True),
    (64, LONG, 40, True),
    (128, LONG, None, False),
]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("dim", "lengths", "window", "rotary"), CASES)
def test_packed_attention(dim, lengths, window, rotary, dtype, many, monkeypatch):
    if many:  # a program takes several heads
        monkeypatch.setattr(fused, "_MANY_PROGRAMS", 1)
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies the bits of bfloat16, not its values")
    heads, tail = 2, 5
    width = heads * dim
    starts, real = _starts(lengths)
    block = _block(width, dim, window, rotary)
    layout = Packed(starts, max(lengths))
    qkv = _noise(real + tail, 3 * width, dtype=dtype)
    # Junk must not reach real sequences, whatever it is.
    qkv[real:] = float("nan")
    plan = fused.plan(layout, real + tail, qkv.device)
    ours = fused.attend(qkv.clone(), block, heads, plan)
    reference = qkv.nan_to_num(0.0).double()
    theirs = torch_operations.attend(
        reference, block, heads, torch_operations.plan(layout, real + tail, qkv.device)
    )
    _close(ours[:real], theirs[:real], dtype)
    assert ours[real:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [[1, 9, 30], [70, 3, 200], [64, 128, 17]], ids=str)
@pytest.mark.parametrize(("dim", "lengths"), [(64, LENGTHS), (16, LENGTHS), (64, LONG), (48, LONG)])
def test_attention_to_a_source(dim, lengths, sizes, dtype):
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies the bits of bfloat16, not its values")
    heads, tail = 2, 5
    width = heads * dim
    starts, real = _starts(lengths)
    layout = Packed(starts, max(lengths))
    ends = torch.tensor(sizes).cumsum(0)
    table = torch.stack([ends - torch.tensor(sizes), torch.tensor(sizes)]).to(DEVICE)
    text = torch.arange(len(lengths), device=DEVICE) * 2 % 3
    kv, q = _noise(int(ends[-1]), 2 * width, dtype=dtype), _noise(real + tail, width, dtype=dtype)
    q[real:] = float("nan")
    reading = Reading(Memory((kv,), *table), text, max(sizes))
    plan, read = fused.plan(layout, real + tail, q.device), fused.read_plan(reading)
    ours = fused.cross(q, 0, heads, plan, read)
    reading = Reading(Memory((kv.double(),), *table), text, max(sizes))
    plan = torch_operations.plan(layout, real + tail, q.device)
    read = torch_operations.read_plan(reading)
    theirs = torch_operations.cross(q.nan_to_num(0.0).double(), 0, heads, plan, read)
    _close(ours[:real], theirs[:real], dtype)
    assert ours[real:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("dim", "lengths", "window", "rotary"), CASES)
def test_attention_of_one_query(dim, lengths, window, rotary, dtype):
    heads, tail = 2, 5
    width = heads * dim
    starts, real = _starts(lengths)
    block = _block(width, dim, window, rotary)
    layout = Packed(starts, max(lengths))
    kv = _noise(real + tail, 2 * width, dtype=dtype)
    kv[real:] = float("nan")
    q = _noise(len(lengths), width, dtype=dtype, seed=1)
    there = torch.tensor(lengths, device=DEVICE) > 0
    for share in (0.0, 0.5, 0.99):
        place = (torch.tensor(lengths) * share).long().to(DEVICE)
        query = torch.where(there, starts[:-1] + place, real)
        plan = fused.plan(layout, real + tail, kv.device)
        ours = fused.attend_one(q.clone(), kv.clone(), query, block, heads, plan)
        theirs = torch_operations.attend_one(
            q.double(),
            kv.nan_to_num(0.0).double(),
            query,
            block,
            heads,
            torch_operations.plan(layout, real + tail, kv.device),
        )
        assert ours.isfinite().all()
        _close(ours[there], theirs[there], dtype)


@pytest.mark.skipif(INTERPRETED, reason="there are no coarse products on a CPU")
def test_coarse_products_are_used_only_when_allowed():
    starts, real = _starts(LENGTHS)
    block, layout = _block(128, 64), Packed(starts, max(LENGTHS))
    qkv = _noise(real, 384)
    exact = fused.attend(qkv, block, 2, fused.plan(layout, real, qkv.device))
    torch.backends.cuda.matmul.allow_tf32 = True
    coarse = fused.attend(qkv, block, 2, fused.plan(layout, real, qkv.device))
    gap = (exact - coarse).abs().max()
    assert 0 < gap < 1e-2 * exact.abs().max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [48, 384, 768])
@pytest.mark.parametrize("biased", [True, False])
def test_norms(width, biased, dtype):
    by = LayerNorm(
        _noise(width, dtype=dtype, seed=3),
        _noise(width, dtype=dtype, seed=4) if biased else None,
        1e-5,
    )
    exact = LayerNorm(by.weight.double(), by.bias.double() if biased else None, by.eps)
    change, stream = _noise(9, width, dtype=dtype), 3 + _noise(9, width, dtype=dtype, seed=2)
    _close(fused.norm(change, by), torch_operations.norm(change.double(), exact), dtype)
    for keep in (False, True):
        ours = fused.join(change.clone(), stream, by, keep)
        theirs = torch_operations.join(change.double(), stream.double(), exact, keep)
        for mine, other in zip(ours, theirs, strict=True):
            _close(mine, other, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("placed", [True, False])
def test_embedding(placed, dtype):
    tokens, table = _noise(40, 48, dtype=dtype), _noise(16, 48, dtype=dtype, seed=1)
    by = LayerNorm(_noise(48, dtype=dtype, seed=2), None, 1e-5)
    embedding = Embedding(tokens, table if placed else None, by)
    exact = Embedding(
        tokens.double(),
        table.double() if placed else None,
        LayerNorm(by.weight.double(), None, by.eps),
    )
    # The last entry is junk, and far out of bounds.
    ids = torch.tensor([3, 39, 0, 2**40], device=DEVICE)
    position = torch.tensor([0, 15, 1, -(2**40)], device=DEVICE)
    layout = Packed(torch.tensor([0, 3], dtype=torch.int32, device=DEVICE), 3)
    ours = fused.embed(embedding, ids, position, fused.plan(layout, 4, ids.device))
    theirs = torch_operations.embed(
        exact, ids, position, torch_operations.plan(layout, 4, ids.device)
    )
    _close(ours, theirs, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("width", [48, 1088])
def test_activations(gated, width, dtype):
    nothing = Affine(torch.empty(1, 1), None)
    feed = FeedForward(nothing, nothing, gated)
    inner = 2 * _noise(11, 2 * width, dtype=dtype)
    _close(
        fused.activate(inner.clone(), feed), torch_operations.activate(inner.double(), feed), dtype
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_encoder(family, monkeypatch):
    network = build(family, torch.float32).to(DEVICE)
    if INTERPRETED:
        monkeypatch.setattr(operations, "_fused", lambda: fused)
        monkeypatch.setattr("maskov.encoders.encoder.operations", lambda weight: fused)
    encoder = encoder_of(network)
    assert encoder is not None
    assert operations.operations(network.base_model.get_input_embeddings().weight) is (
        torch_operations if INTERPRETED else fused
    )
    ids, starts, query = packed([3, 9, 0, 14, 1], tail=4, device=DEVICE)
    layout = Packed(starts, 15)
    ours = encoder(ids, places(starts, len(ids)), layout, query)
    assert ours.isfinite().all()
    for one, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        if end > start:
            theirs = network.base_model(input_ids=ids[None, start:end])[0][0]
            at = int(query[one]) - start
            assert torch.allclose(ours[one], theirs[at], atol=2e-4 * float(theirs.abs().max()))
    same = ids[:14].reshape(2, 7)
    uniform = encoder(
        same.flatten(), torch.arange(7).repeat(2).to(DEVICE), Uniform(2, 7), query[:2] * 0 + 5
    )
    assert uniform.isfinite().all()


@pytest.mark.skipif(INTERPRETED, reason="a graph needs a GPU")
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_graph_is_captured_and_replayed_with_other_contents(family, dtype):
    encoder = cast(encoder_of(build(family, torch.float32).to(DEVICE)), dtype)
    room = 40
    ids = torch.zeros(room, dtype=torch.long, device=DEVICE)
    position, starts = torch.zeros_like(ids), torch.zeros(6, dtype=torch.int32, device=DEVICE)
    query = torch.zeros(5, dtype=torch.long, device=DEVICE)
    layout = Packed(starts, 16)

    def fill(lengths):
        new, begin, at = packed(lengths, tail=room - sum(lengths), device=DEVICE)
        ids.copy_(new)
        starts.copy_(begin)
        position.copy_(places(begin, room))
        query.copy_(at)

    fill([3, 9, 0, 14, 1])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        encoder(ids, position, layout, query)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = encoder(ids, position, layout, query)
    for lengths in ([3, 9, 0, 14, 1], [8, 8, 8, 8, 8], [0, 0, 2, 0, 0], [16, 1, 5, 7, 11]):
        fill(lengths)
        graph.replay()
        there = torch.tensor(lengths, device=DEVICE) > 0
        eager = encoder(ids, position, layout, query)
        assert out.isfinite().all()
        _close(out[there], eager[there].double(), dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("temperature", [1.0, 0.8, 0.05])
@pytest.mark.parametrize("vocabulary", [9, 2048, 5000])
def test_one_kernel_draws_what_torch_draws(dtype, temperature, vocabulary):
    keys, rows = torch.Generator(DEVICE).manual_seed(1), 400
    settings = {"generator": keys, "device": DEVICE}
    logits = torch.randn(rows, vocabulary, dtype=dtype, **settings) * 4
    forbidden = torch.rand(vocabulary, **settings) < 0.3
    current = torch.randint(vocabulary + 1, (rows,), **settings)  # the last one is the mask
    uniform = torch.rand(rows, dtype=torch.float64, **settings)
    uniform[0], uniform[1] = 0, 1 - 2.0**-53
    token, *found = triton_draws.read(forbidden, temperature, logits, current, uniform)
    log_q = MaskedConditional(temperature=temperature).log_probabilities(logits, forbidden)
    assert torch.equal(token, categorical(log_q.exp(), uniform))
    log_q = torch.nn.functional.pad(log_q, (0, 1), value=-torch.inf)
    known, rows = current.clamp(max=vocabulary - 1), torch.arange(rows, device=DEVICE)
    scores, columns = logits.double(), [log_q[rows, token], log_q[rows, current]]
    columns += [scores[rows, token], scores.logsumexp(1), scores[rows, known]]
    assert torch.allclose(torch.stack(found), torch.stack(columns), atol=1e-10)
    logits[3, 5] = torch.nan
    assert triton_draws.read(forbidden, 1.0, logits, current)[4].isnan().nonzero().tolist() == [[3]]
