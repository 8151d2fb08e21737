"""What our encoder does not know is left to the network's own forward."""

import pytest
from torch import nn

import maskov
from encoders.tiny_encoders import OTHERS, build
from maskov.encoders import Encoder
from small import tiny_bert

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
    if Encoder.of(network) is None:
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


def test_a_wrong_window_shows_on_the_probe(monkeypatch):
    network = build("modernbert")
    network.config.local_attention = 6
    known = _encoder(network)
    assert known.network.blocks[1].window == 3
    # The masks are made from the setting when the network runs; ours are read before.
    monkeypatch.setattr(Encoder, "of", lambda network: known)
    network.config.local_attention = 4
    assert maskov.HuggingFaceModel(network, TOKENIZER, "tiny").encoder is None
