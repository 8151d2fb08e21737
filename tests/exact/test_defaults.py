"""What a user gets who asks for nothing in particular, and the energy of a causal model."""

import pytest
import torch

import maskov
from maskov.arguments import DEFAULT_DRAWS, DEFAULT_ENERGY, default_kernel
from maskov.kernels.base import kernel_at
from maskov.plan import plan
from maskov.testing import check_energy, check_kernel
from small import random_table, tiny_bert
from tiny_models import build_gpt2

TABLE = random_table(3, 2)
BERT = tiny_bert("red green")


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_the_default_kernel(energy):
    check_kernel(default_kernel(energy), TABLE, length=3, seeds=2)


@pytest.mark.parametrize("model", [TABLE, BERT], ids=["table", "bert"])
def test_plain_sentences_are_redrawn(model):
    planned = plan(model=model, length=3)
    kernel, schedule = planned.kernel, planned.manifest.schedule
    assert str(kernel.energy) == DEFAULT_ENERGY
    assert (schedule.epochs, schedule.burn_in) == (DEFAULT_DRAWS, 8)
    # The part that is drawn from cancels in the test.
    assert kernel.energy.parts[0] == (1.0, kernel.move.start)
    check_kernel(kernel, model, length=3)
    for options in ({"moves": "span"}, {"contains": "red"}, {"texts": ["red green red"]}):
        assert plan(model=BERT, **options).manifest.config.kernel["energy"] == "raw"


def test_a_run_of_raw_has_the_other_defaults():
    run = maskov.sample(BERT, chains=2, length=4, energy="raw")
    schedule = maskov.Schedule(epochs=30, burn_in=8, burn_in_energy="raw(groups=4)")
    assert run.manifest.schedule == schedule
    assert "spans of 1,2,3|delayed:2" in run.signature
    assert "burn-in:raw(groups=4)" in run.signature


@pytest.mark.parametrize("epoch", [0, 19], ids=["burn-in", "kept"])
def test_every_epoch_of_the_default_command(epoch):
    planned = plan(model=BERT, energy="raw")
    now = kernel_at(planned.kernel, planned.manifest.schedule, epoch)
    assert str(now.energy) == ("raw(groups=4)" if epoch == 0 else "raw")
    check_kernel(now, BERT, length=3)


def test_the_energy_of_a_causal_model(tmp_path):
    model = tiny_bert("red green")
    folder = build_gpt2(tmp_path / "gpt2", model.tokenizer, torch.float64)
    causal = maskov.Autoregressive(str(folder), dtype=torch.float64)
    check_energy(causal, model, length=2)
    check_kernel(maskov.Metropolis(causal, maskov.Site()), model, length=2)
    check_kernel(maskov.Metropolis(maskov.Norm() + 0.5 * causal, maskov.Span()), model, length=2)
