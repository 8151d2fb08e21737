"""Windows on a GPU: recorded rounds, the chains of lock-step, the same bytes after a stop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import maskov
from engines import sample
from maskov import DelayedAcceptance, Metropolis, Norm, Raw, Schedule, Span, resume
from maskov.errors import Interrupted
from maskov.execution.recorded import RecordedWindows
from maskov.models import untrained
from maskov.runs.async_group import sampler_for
from small import tiny_bert

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")


def _model(device="cuda", dtype=torch.float64):
    model = tiny_bert("red green blue white black", dtype=dtype)
    return maskov.HuggingFaceModel(model.network.to(device), model.tokenizer, "tiny-bert")


@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
@pytest.mark.parametrize("sizes", [(2, 3), (1, 2, 3), (20,)], ids=str)
@pytest.mark.parametrize("way", [{}, {"resident": 7}, {"token_budget": 256}], ids=str)
def test_the_same_chains_as_in_lock_step(energy, sizes, way):
    kernel = Metropolis(energy, Span(sizes=sizes), delayed=DelayedAcceptance(2))
    model = _model()
    assert sampler_for(model, kernel) is RecordedWindows
    settings = {"schedule": Schedule(epochs=6), "chains": 20, "length": (1, 14), "thin": 2}
    plain = sample(model, kernel, lock_step=True, **settings)
    flown = sample(model, kernel, **settings, **way)
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    for name in (*COUNTS, "tokens", "rejected"):
        assert (plain.traces[name] == flown.traces[name]).all(), name
    assert np.abs(plain.traces["energy_norm"] - flown.traces["energy_norm"]).max() < 1e-8


def test_the_same_chains_as_on_a_cpu():
    kernel = Metropolis(Raw(), Span(sizes=(1, 2, 3)), delayed=DelayedAcceptance((1, 4)))
    settings = {"schedule": Schedule(epochs=8), "chains": 20, "length": (3, 14)}
    here, there = sample(_model("cpu"), kernel, **settings), sample(_model(), kernel, **settings)
    assert [one.ids for one in here.samples] == [one.ids for one in there.samples]
    assert (here.traces["passes"] == there.traces["passes"]).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, precision):
    model = untrained("cuda")
    if precision == "bfloat16":
        model = model.in_precision(torch.bfloat16)
        model.precision = precision
    kernel = Metropolis(Raw(), Span(), delayed=DelayedAcceptance(2))
    settings = {"schedule": Schedule(epochs=6), "chains": 30, "length": (4, 20), "seed": 3}
    whole = sample(model, kernel, out=tmp_path / "whole", **settings)
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) % 60 == 0

    with pytest.raises(Interrupted):
        sample(model, kernel, out=tmp_path / "cut", stop=stop, **settings)
    for _ in range(100):
        try:
            run = resume(tmp_path / "cut", model, stop=stop)
            break
        except Interrupted:
            continue
    assert [one.to_json() for one in run.samples] == [one.to_json() for one in whole.samples]
    for name, trace in whole.traces.items():
        assert trace.tobytes() == run.traces[name].tobytes()


def test_the_default_run_begins_in_lock_step_and_goes_on_in_rounds():
    """Burn-in masks groups of positions, which only lock-step does."""
    run = sample(untrained("cuda"), chains=12, length=(5, 12), thin=4)
    again = maskov.score(untrained("cuda"), [one.text for one in run.samples], Norm())
    for kept, fresh in zip(run.samples, again, strict=True):
        if kept.tokens == fresh.tokens:
            assert kept.energy_norm == pytest.approx(fresh.energy, abs=2e-3)
