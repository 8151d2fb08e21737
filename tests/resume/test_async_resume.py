"""Runs in flight that are stopped anywhere, and in portions, end in the same bytes."""

from __future__ import annotations

import pytest
import torch

from engines import sample as sample_by
from maskov import (
    DelayedAcceptance,
    Gibbs,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Norm,
    Raw,
    Run,
    Schedule,
    Sweep,
    resume,
    sample,
)
from maskov.errors import Interrupted, ModelError
from maskov.execution.recorded import RecordedSites
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.runs import async_group as flight
from small import tiny_bert

MODEL = tiny_bert("red green blue white black", torch.float32)
SETTINGS = {"schedule": Schedule(epochs=6), "chains": 7, "length": (3, 9), "seed": 2, "thin": 2}
WAYS = {
    "early tests": (Metropolis(Norm()), {}),
    "three at once": (Metropolis(Raw(), delayed=DelayedAcceptance(2)), {}),
    "in portions": (Metropolis(Norm(), Site(MaskedConditional(top_p=0.6))), {"resident": 3}),
    "gibbs in portions": (Gibbs(), {"resident": 2}),
    "blocks in portions": (Metropolis(Raw(), Site(positions=Sweep(block=2))), {"resident": 3}),
}


def _same(one: Run, other: Run) -> None:
    assert [a.to_json() for a in one.samples] == [b.to_json() for b in other.samples]
    for name, trace in one.traces.items():
        assert trace.tobytes() == other.traces[name].tobytes(), name


@pytest.fixture
def slots(way, monkeypatch):
    """Test three proposals of a chain at once, if that is the way."""
    if way == "three at once":
        monkeypatch.setattr(Scorer, "slots_for", lambda *_: 3)


@pytest.mark.parametrize("way", WAYS)
def test_stopped_again_and_again_it_ends_in_the_same_bytes(tmp_path, way, slots):
    """Each attempt is stopped at a later poll than the one before, in or between batches."""
    kernel, settings = WAYS[way]
    whole = sample(MODEL, kernel, out=tmp_path / "whole", **SETTINGS, **settings)
    polls = {"now": 0, "limit": 2}

    def stop() -> bool:
        polls["now"] += 1
        return polls["now"] > polls["limit"]

    def attempt():
        polls.update(now=0, limit=polls["limit"] + 5)
        if (tmp_path / "cut" / "manifest.json").exists():
            return resume(tmp_path / "cut", MODEL, stop=stop, checkpoint_every=0.05)
        return sample(
            MODEL, kernel, out=tmp_path / "cut", stop=stop, checkpoint_every=0.05, **SETTINGS,
            **settings,
        )  # fmt: skip

    stops = 0
    while True:
        try:
            run = attempt()
            assert not run.damaged
            break
        except Interrupted:
            stops += 1
    assert stops >= 3
    _same(whole, run)


@pytest.mark.parametrize("when", range(5, 21, 5))
def test_a_stop_right_after_a_broken_batch_does_not_hide_it(tmp_path, when):
    """What a broken batch said is never saved: the run goes on as if it had not happened."""
    broken, calls = tiny_bert("red green blue white black", torch.float32), []

    def sometimes(tokens, lengths, place, source):
        calls.append(1)
        answer = type(broken).hidden_at(broken, tokens, lengths, place, source)
        return answer * float("nan") if len(calls) == when else answer

    broken.hidden_at = sometimes
    kernel = Metropolis(Norm())
    whole = sample(MODEL, kernel, **SETTINGS)
    with pytest.raises((ModelError, Interrupted)):
        sample(
            broken, kernel, out=tmp_path / "run", stop=lambda: len(calls) >= when,
            checkpoint_every=0, **SETTINGS,
        )  # fmt: skip
    if (tmp_path / "run" / "manifest.json").exists():
        _same(whole, resume(tmp_path / "run", MODEL))


def test_lock_step_makes_the_same_chains():
    """The same signature means the same chains, and early tests are a part of it."""
    plain = sample_by(MODEL, Metropolis(Raw()), lock_step=True, **SETTINGS)
    flown = sample(MODEL, Metropolis(Raw()), **SETTINGS)
    once = sample(MODEL, Metropolis(Raw(), delayed=DelayedAcceptance(0)), **SETTINGS)
    assert plain.signature == flown.signature != once.signature
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    blocks = Schedule(epochs=8, block=LinearSchedule(2.0, 1.0, 1.0))
    moving = sample(MODEL, Metropolis(Raw()), blocks, chains=3, length=6)
    assert "delayed:2" in moving.signature


@pytest.mark.parametrize("way", ["early tests", "three at once", "in portions"])
def test_rounds_of_a_gpu_leave_checkpoints_that_are_gone_on_from(way, tmp_path, monkeypatch, slots):
    """The rounds that a GPU records, done on a CPU: what stands between two of them is whole."""
    monkeypatch.setattr(flight, "sampler_for", lambda *_: RecordedSites)
    kernel, more = WAYS[way]
    whole = sample(MODEL, kernel, out=tmp_path / "whole", **SETTINGS, **more)
    for at in (8, 16, 24):
        looks, folder = iter(range(10**6)), tmp_path / f"cut-{at}"
        with pytest.raises(Interrupted):
            sample(
                MODEL, kernel, out=folder, checkpoint_every=0, **SETTINGS, **more,
                stop=lambda looks=looks, at=at: next(looks) > at,
            )  # fmt: skip
        run = resume(folder, MODEL)
        assert not run.damaged
        _same(whole, run)
