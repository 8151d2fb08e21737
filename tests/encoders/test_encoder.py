"""Our encoder is the network's own, token by token; what it does not know is left alone."""

import pytest
import torch
from torch import nn

import maskov
from encoders.tiny_encoders import FAMILIES, OTHERS, build, packed, places, tokens
from maskov.encoders import Packed, Uniform, cast
from maskov.encoders.families import encoder_of
from small import tiny_bert
from tiny_models import CAPACITY

LENGTHS = [3, 9, 0, 14, 1, 0, 24, 2]


def _own(network, ids):
    return network.base_model(input_ids=ids[None])[0][0]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request):
    network = build(request.param)
    encoder = encoder_of(network)
    assert encoder is not None
    return network, encoder


@pytest.mark.parametrize("width", [1, 2, 7, CAPACITY])
def test_sequences_of_one_width_at_every_token(pair, width):
    network, encoder = pair
    ids = tokens(3 * width).view(3, width)
    theirs = network.base_model(input_ids=ids)[0]
    for place in range(width):
        ours = encoder(
            ids.flatten(),
            torch.arange(width).repeat(3),
            Uniform(3, width),
            torch.arange(3) * width + place,
        )
        assert torch.allclose(ours, theirs[:, place], rtol=0, atol=1e-9)


def test_packed_sequences_at_every_token(pair):
    network, encoder = pair
    lengths = [n for n in LENGTHS if n for _ in range(n)]
    ids, starts, _ = packed(lengths)
    query = starts[:-1].long() + torch.tensor([i for n in LENGTHS for i in range(n)])
    ours = encoder(ids, places(starts, len(ids)), Packed(starts, CAPACITY), query)
    for row, (start, n) in enumerate(zip(starts.tolist(), lengths, strict=False)):
        theirs = _own(network, ids[start : start + n])
        assert torch.allclose(ours[row], theirs[int(query[row]) - start], rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", ["packed", "of one width"])
def test_several_tokens_of_a_sequence_at_once(pair, layout):
    network, encoder = pair
    lengths = [n for n in LENGTHS if n] if layout == "packed" else [7, 7, 7]
    ids, starts, _ = packed(lengths)
    shape = Packed(starts, CAPACITY) if layout == "packed" else Uniform(3, 7)
    query = torch.arange(len(ids)).flip(0)[::2]
    ours = encoder(ids, places(starts, len(ids)), shape, query, several=True)
    theirs = torch.cat(
        [_own(network, ids[s : s + n]) for s, n in zip(starts.tolist(), lengths, strict=False)]
    )
    assert torch.allclose(ours, theirs[query], rtol=0, atol=1e-9)


def test_dummies_and_junk_change_nothing(pair):
    _, encoder = pair
    ids, starts, query = packed(LENGTHS)
    position = places(starts, len(ids))
    clean = encoder(ids, position, Packed(starts, CAPACITY), query)
    junk = torch.tensor([2**40, -5, 3, 10**6, 7])
    query = torch.where(starts[1:] > starts[:-1], query, len(ids))
    ours = encoder(
        torch.cat([ids, junk]),
        torch.cat([position, junk]),
        Packed(torch.cat([starts, starts[-1:], starts[-1:]]), CAPACITY + 7),
        torch.cat([query, torch.tensor([0, len(ids) + 4])]),
    )
    assert ours.isfinite().all()
    there = torch.tensor(LENGTHS) > 0
    assert torch.allclose(ours[: len(LENGTHS)][there], clean[there], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_are_close(pair, dtype):
    _, encoder = pair
    ids, starts, query = packed(LENGTHS, tail=3)
    position, layout = places(starts, len(ids)), Packed(starts, CAPACITY)
    there = torch.tensor(LENGTHS) > 0
    exact = encoder(ids, position, layout, query)[there]
    ours = cast(encoder, dtype)(ids, position, layout, query)[there]
    assert ours.dtype == dtype
    share = {torch.float32: 1e-5, torch.bfloat16: 0.1, torch.float16: 0.02}[dtype]
    assert (ours - exact).abs().max() <= share * exact.abs().max()


ACTIVATION = {
    "bert": "hidden_act", "modernbert": "hidden_activation", "distilbert": "activation"
}  # fmt: skip
VARIANTS = [
    (family, {name: activation})
    for family, name in ACTIVATION.items()
    for activation in ("relu", "gelu_new", "silu", "gelu_python")
] + [
    ("modernbert", {"local_attention": 128}),  # wider than the sequence
    ("modernbert", {"global_attn_every_n_layers": 2}),  # an older name of a setting
]


@pytest.mark.parametrize(("family", "changes"), VARIANTS, ids=str)
def test_other_settings_are_the_family_s_own(family, changes):
    network = build(family, **changes)
    encoder = encoder_of(network)
    assert encoder is not None
    ids = tokens(20)
    ours = encoder(ids, torch.arange(20), Uniform(1, 20), torch.tensor([11]))
    assert torch.allclose(ours[0], _own(network, ids)[11], rtol=0, atol=1e-9)


TOKENIZER = tiny_bert().tokenizer

SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}


class Wrapped(nn.Linear):
    """A module of another class, which may do anything."""


def _layer(network):
    return network.base_model.encoder.layer[0]


def _hook(network):
    _layer(network).register_forward_hook(lambda module, args, output: output)


def _hook_before(network):
    _layer(network).output.dense.register_forward_pre_hook(lambda module, args: args)


def _other_scale(network):
    """A familiar name that does something else."""
    _layer(network).attention.self.scaling *= 2


# Family, settings, and what is then done to the network.
UNKNOWN = {
    **{family: (family, {}, None) for family in OTHERS},
    "decoder": ("bert", {"is_decoder": True}, None),
    "relative positions": (
        "bert", {}, lambda x: setattr(x.config, "position_embedding_type", "relative_key")
    ),
    "in training": ("bert", {}, lambda x: x.train()),
    "scaled rotary positions": (
        "modernbert",
        {"rope_parameters": {"full_attention": SCALED, "sliding_attention": SCALED}},
        None,
    ),
    "hook": ("bert", {}, _hook),
    "hook before": ("bert", {}, _hook_before),
    "replaced forward": (
        "distilbert", {},
        lambda x: setattr(x.base_model.transformer.layer[0].ffn, "forward", lambda y: y),
    ),
    "another class": ("bert", {}, lambda x: setattr(_layer(x).output.dense, "__class__", Wrapped)),
    "several dtypes": ("bert", {}, lambda x: _layer(x).output.LayerNorm.float()),
    "another scale": ("bert", {}, _other_scale),
}  # fmt: skip


def _encoder(network):
    """Return our encoder of a network, if it is used."""
    if encoder_of(network) is None:
        return None
    return maskov.HuggingFaceModel(network, TOKENIZER, "tiny").encoder


@pytest.mark.parametrize("name", UNKNOWN)
def test_networks_that_are_not_known(name):
    family, settings, change = UNKNOWN[name]
    network = build(family, **settings)
    if change is not None:
        assert _encoder(network) is not None
        change(network)
    assert _encoder(network) is None
