"""The count of matrix products against torch's own counter."""

import pytest
import torch
from benchmarks.flops import flops_per_pass, sampling_flops
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import maskov
import tiny_models

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
        assert sampling_flops(model, [6], [3], [3], "raw") is None
        return
    found = sampling_flops(model, [6], [3], [3], "raw")
    counted = passes.get_total_flops() + proposals.get_total_flops()
    assert counted == pytest.approx(found, rel=0.005 if family == "modernbert" else 0, abs=0)
    projection = 2 * config.hidden_size * config.vocab_size
    assert proposals.get_total_flops() == 3 * projection
    # Where the energy needs the normaliser, each pass projects onto the vocabulary as well.
    norm = sampling_flops(model, [6], [3], [3], "norm")
    assert norm == found + 3 * projection
