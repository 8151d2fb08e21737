"""Recorded steps of degenerate Gibbs do what lock-step does; here without recording."""

import pytest
import torch

from maskov import Gibbs, MaskedConditional, Metropolis, Raw, Schedule, sample
from maskov.errors import ModelError
from maskov.execution import recorded_gibbs
from maskov.moves import Site, Sweep
from maskov.runs import task_runner
from small import tiny_bert
from tiny_translation import SOURCES, conditional

MODEL = tiny_bert("red green blue white black")
GIVEN = conditional().given(SOURCES)
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible", "tokens")
CONDITIONAL = MaskedConditional(temperature=1.3)
RUNS = {
    "sentences": (MODEL, {"chains": 9, "length": (2, 8)}),
    "in groups": (MODEL, {"chains": 11, "length": (2, 8), "resident": 4}),
    "a template": (MODEL, {"templates": ["red [MASK] blue [MASK] [MASK]"], "chains": 5}),
    "translations": (GIVEN, {"chains": 3, "lengths": "drawn"}),
}


@pytest.fixture
def recorded(monkeypatch):
    """Record on any device; return the number of epochs that were."""
    epochs = []
    plain = recorded_gibbs.RecordedGibbs.epoch

    def everywhere(kernel, model):
        return isinstance(kernel, Gibbs)

    def epoch(self, chains):
        epochs.append(len(chains.chain))
        return plain(self, chains)

    monkeypatch.setattr(task_runner, "records_gibbs", everywhere)
    monkeypatch.setattr(recorded_gibbs.RecordedGibbs, "epoch", epoch)
    return epochs


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "kernel",
    [
        Gibbs(Site(CONDITIONAL)),
        Gibbs(Site(CONDITIONAL, Sweep("left-to-right"))),
        Metropolis(Raw(), Site(CONDITIONAL)),
    ],
    ids=["gibbs", "left to right", "forced epochs"],
)
def test_the_same_chains_as_in_lock_step(run, kernel, request):
    model, settings = RUNS[run]
    schedule = Schedule(epochs=4, force_accept=3 if isinstance(kernel, Metropolis) else 0)
    settings = {"schedule": schedule, "seed": 5, "thin": 1, **settings}
    plain = sample(model, kernel, **settings)
    epochs = request.getfixturevalue("recorded")
    found = sample(model, kernel, **settings)
    assert len(epochs) >= 3
    assert [one.ids for one in found.samples] == [one.ids for one in plain.samples]
    assert plain.traces["novel"].sum() > 0
    for name in COUNTS:
        assert (plain.traces[name] == found.traces[name]).all()
    energy = plain.traces["energy_norm"] - found.traces["energy_norm"]
    assert abs(energy).max() < 1e-9


def test_out_of_memory_in_a_recorded_step_is_one_sentence(recorded):
    model, calls = tiny_bert("red green blue white black"), []
    plain = type(model).hidden_of

    def full(passes, longest, source):
        calls.append(1)
        if len(calls) == 12:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return plain(model, passes, longest, source)

    model.hidden_of = full
    with pytest.raises(ModelError, match="ran out of memory in the middle of a round"):
        sample(model, Gibbs(Site(CONDITIONAL)), schedule=Schedule(epochs=4), chains=5, length=6)
    assert recorded
