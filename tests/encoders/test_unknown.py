"""What our encoder does not know is left to the network's own forward."""

import pytest
import torch
from torch import nn

from encoders.tiny_encoders import OTHERS, build
from maskov.encoders import Encoder

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


@pytest.mark.parametrize("name", UNKNOWN)
def test_networks_that_are_not_known(name):
    family, settings, change = UNKNOWN[name]
    network = build(family, **settings)
    if change is not None:
        assert Encoder.of(network) is not None
        change(network)
    assert Encoder.of(network) is None


def test_recording_hooks_of_transformers_are_harmless():
    network = build("bert")
    network.base_model(input_ids=torch.tensor([[3, 4]]), output_hidden_states=True)
    assert Encoder.of(network) is not None


def test_a_wrong_window_shows_on_the_probe():
    network = build("modernbert")
    assert Encoder.of(network) is not None
    # The masks are made from the setting when the network runs; ours were read before.
    network.config.local_attention = 6
    other = Encoder.of(network)
    assert other is not None
    assert other.network.blocks[1].window == 3
