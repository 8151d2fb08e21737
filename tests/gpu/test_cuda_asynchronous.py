"""Chains in flight on a GPU: recorded rounds, the same chains, the same bytes after a stop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import maskov
from engines import sample
from maskov import DelayedAcceptance, Metropolis, Norm, Raw, Schedule, resume
from maskov.errors import Interrupted
from maskov.execution.recorded import RecordedSites
from maskov.models import untrained
from maskov.runs.async_group import sampler_for
from small import tiny_bert

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def _model(device="cuda", dtype=torch.float64):
    model = tiny_bert("red green blue white black", dtype=dtype)
    return maskov.HuggingFaceModel(model.network.to(device), model.tokenizer, "tiny-bert")


@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
@pytest.mark.parametrize("way", [{}, {"slots": 3}, {"resident": 7}, {"token_budget": 256}], ids=str)
def test_the_same_chains_as_in_lock_step(energy, way):
    kernel = Metropolis(energy, delayed=DelayedAcceptance(0))
    settings = {"schedule": Schedule(epochs=6), "chains": 20, "length": (2, 14), "thin": 2}
    plain = sample(_model(), kernel, lock_step=True, **settings)
    flown = sample(_model(), kernel, **settings, **way)
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    for name in ("accepted", "novel", "proposed_novel", "steps", "irreversible"):
        assert (plain.traces[name] == flown.traces[name]).all()
    assert np.abs(plain.traces["energy_norm"] - flown.traces["energy_norm"]).max() < 1e-8


@pytest.mark.parametrize(
    "delayed", [DelayedAcceptance(0), DelayedAcceptance(2), DelayedAcceptance((1, 3))], ids=str
)
def test_delayed_acceptance_as_on_the_cpu(delayed):
    kernel = Metropolis(Raw(), delayed=delayed)
    settings = {"schedule": Schedule(epochs=8), "chains": 20, "length": (3, 14), "slots": 1}
    here, there = sample(_model("cpu"), kernel, **settings), sample(_model(), kernel, **settings)
    assert [one.ids for one in here.samples] == [one.ids for one in there.samples]
    assert (here.traces["passes"] == there.traces["passes"]).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, precision):
    model = untrained("cuda")
    if precision == "bfloat16":
        model = model.in_precision(torch.bfloat16)
        model.precision = precision
    assert sampler_for(model, Metropolis(Raw())) is RecordedSites
    settings = {"schedule": Schedule(epochs=8), "chains": 30, "length": (4, 20), "seed": 3}
    whole = sample(model, out=tmp_path / "whole", **settings)
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) % 60 == 0

    with pytest.raises(Interrupted):
        sample(model, out=tmp_path / "cut", stop=stop, **settings)
    for _ in range(100):
        try:
            run = resume(tmp_path / "cut", model, stop=stop)
            break
        except Interrupted:
            continue
    assert [one.to_json() for one in run.samples] == [one.to_json() for one in whole.samples]
    for name, trace in whole.traces.items():
        assert trace.tobytes() == run.traces[name].tobytes()


def test_cached_passes_stay_those_of_the_tokens():
    """After a long flight in float32 the kept energies are those of a fresh computation."""
    model = untrained("cuda")
    run = sample(model, Metropolis(Norm()), Schedule(epochs=30), chains=64, length=(5, 30))
    again = maskov.score(model, [one.text for one in run.samples], Norm())
    for kept, fresh in zip(run.samples, again, strict=True):
        assert kept.tokens == fresh.tokens
        assert kept.energy_norm == pytest.approx(fresh.energy, abs=2e-3)
