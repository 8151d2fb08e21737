"""What a user gets who asks for nothing in particular, and the energy of a causal model."""

import pytest
import torch

import maskov
from maskov.arguments import default_kernel
from maskov.execution.loop import kernel_at
from maskov.plan import plan
from maskov.testing import check_energy, check_kernel
from small import random_table, tiny_bert
from tiny_models import build_gpt2

TABLE = random_table(3, 2)
BERT = tiny_bert("red green")


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_the_default_kernel(energy):
    check_kernel(default_kernel(energy), TABLE, length=3, seeds=2)


def test_the_command_and_the_library_have_one_default():
    assert plan(model=TABLE).kernel.kernel == default_kernel()


def test_a_run_without_kernel_and_schedule_has_both_defaults():
    run = maskov.sample(BERT, chains=2, length=4)
    assert run.manifest.schedule == maskov.default_schedule()
    assert "spans of 1,2,3|delayed:2" in run.signature
    assert "burn-in:raw(groups=4)" in run.signature


@pytest.mark.parametrize("epoch", [0, 19], ids=["burn-in", "kept"])
def test_every_epoch_of_the_default_command(epoch):
    """Each is exact for a target of its own: that of burn-in for the grouped energy."""
    planned = plan(model=BERT)
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
