"""The count of matrix products against torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import maskov
import tiny_models
from maskov.benchmarks.flops import NetworkSize, flops_per_pass, sampling_flops

FAMILIES = ["bert", "roberta", "esm", "modernbert"]


@pytest.fixture(autouse=True)
def _plain_attention():
    """Have attention done by plain products: torch does not count its fused one on a CPU."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [3, 11])
def test_a_whole_forward_is_counted_as_torch_counts_it(family, length, tmp_path):
    network = maskov.load(str(tiny_models.build(family, tmp_path)), "cpu").network
    ids = torch.full((4, length + 2), 5)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(input_ids=ids)
    expected = 4 * flops_per_pass(network.config, length)
    # Rotary angles are a product, too, of a size that does not matter; no other family has any.
    slack = 0.005 if family in ("modernbert", "esm") else 0
    assert counter.get_total_flops() == pytest.approx(expected, rel=slack, abs=0)


@pytest.mark.parametrize("family", ["bert", "modernbert", "distilbert"])
def test_what_maskov_executes_is_counted_as_torch_counts_it(family, tmp_path):
    """A masked pass of the engine, and the projection of a proposal."""
    model = maskov.load(str(tiny_models.build(family, tmp_path)), "cpu")
    config = model.network.config
    with FlopCounterMode(display=False) as passes, torch.no_grad():
        hidden = model.hidden_at(
            torch.full((3, 6), 7), torch.full((3,), 6), torch.tensor([0, 2, 5])
        )
    with FlopCounterMode(display=False) as proposals, torch.no_grad():
        model.logits(hidden)
    if family == "distilbert":
        assert sampling_flops(model, 6, 2, passes=3, steps=3, energy="raw") is None
        return
    found = sampling_flops(model, 6, 2, passes=3, steps=3, energy="raw")
    counted = passes.get_total_flops() + proposals.get_total_flops()
    assert counted == pytest.approx(found, rel=0.005 if family == "modernbert" else 0, abs=0)
    assert proposals.get_total_flops() == 3 * NetworkSize.of(config).projection
    # Where the energy needs the normaliser, each pass projects onto the vocabulary as well.
    norm = sampling_flops(model, 6, 2, passes=3, steps=3, energy="norm")
    assert norm == found + 3 * NetworkSize.of(config).projection


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_last_layer_at_the_query_only_is_that_layer_done_by_hand(family, tmp_path):
    network = maskov.load(str(tiny_models.build(family, tmp_path)), "cpu").network
    shape, tokens = NetworkSize.of(network.config), 9
    into = 2 * shape.inner if shape.gated else shape.inner
    x, query = torch.zeros(tokens, shape.width), torch.zeros(1, shape.width)
    with FlopCounterMode(display=False) as counter:
        keys, values = (x @ torch.zeros(shape.width, shape.width) for _ in range(2))
        scores = (query @ torch.zeros(shape.width, shape.width)) @ keys.T
        out = (scores @ values) @ torch.zeros(shape.width, shape.width)
        inner = (out @ torch.zeros(shape.width, into))[:, : shape.inner]
        inner @ torch.zeros(shape.inner, shape.width)
    whole, cut = (
        flops_per_pass(network.config, tokens - 2, last_layer_query_only=only)
        for only in (False, True)
    )
    assert whole - cut == shape.layer(tokens, tokens) - counter.get_total_flops() > 0


def test_a_family_that_is_not_known_has_no_count(tmp_path):
    network = maskov.load(str(tiny_models.build("mpnet", tmp_path)), "cpu").network
    assert flops_per_pass(network.config, 5) is None
