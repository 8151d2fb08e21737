"""What our encoder does not know is left to the network's own forward."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from encoders.tiny_encoders import OTHERS, build
from maskov.encoders import Encoder


@pytest.mark.parametrize("family", OTHERS)
def test_other_families(family):
    assert Encoder.of(build(family)) is None


def test_decoders():
    assert Encoder.of(build("bert", is_decoder=True)) is None


def test_relative_positions():
    network = build("bert")
    network.config.position_embedding_type = "relative_key"
    assert Encoder.of(network) is None


def test_networks_in_training():
    assert Encoder.of(build("bert").train()) is None


def test_scaled_rotary_positions():
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    kinds = {"full_attention": scaled, "sliding_attention": scaled}
    assert Encoder.of(build("modernbert", rope_parameters=kinds)) is None


def test_hooks():
    network = build("bert")
    layer = network.base_model.encoder.layer[1]
    handle = layer.register_forward_hook(lambda module, args, output: output)
    assert Encoder.of(network) is None
    handle.remove()
    assert Encoder.of(network) is not None
    layer.output.dense.register_forward_pre_hook(lambda module, args: args)
    assert Encoder.of(network) is None


def test_recording_hooks_of_transformers_are_harmless():
    network = build("bert")
    network.base_model(input_ids=torch.tensor([[3, 4]]), output_hidden_states=True)
    assert Encoder.of(network) is not None


def test_a_forward_that_was_replaced():
    network = build("distilbert")
    module = network.base_model.transformer.layer[0].ffn
    module.forward = lambda x: x
    assert Encoder.of(network) is None


def test_modules_of_another_class():
    class Wrapped(nn.Linear):
        pass

    network = build("bert")
    network.base_model.encoder.layer[0].output.dense.__class__ = Wrapped
    assert Encoder.of(network) is None


def test_weights_of_several_dtypes():
    network = build("bert")
    network.base_model.encoder.layer[0].output.LayerNorm.float()
    assert Encoder.of(network) is None


def test_a_familiar_name_that_does_something_else():
    network = build("bert")
    attention = network.base_model.encoder.layer[0].attention.self
    attention.scaling = 2 * attention.scaling
    assert Encoder.of(network) is None


def test_a_wrong_window_shows_on_the_probe():
    network = build("modernbert")
    encoder = Encoder.of(network)
    assert encoder is not None
    # The masks are made from the setting when the network runs; ours were read before.
    network.config.local_attention = 6
    other = Encoder.of(network)
    assert other is not None
    assert other.network.blocks[1].window == 3
