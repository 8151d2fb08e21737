"""Rounds of fixed shapes, as a GPU runs them, do what all others do; here without recording."""

from __future__ import annotations

import pytest
import torch

from engines import sample
from maskov import (
    DelayedAcceptance,
    MaskedConditional,
    Metropolis,
    Raw,
    Schedule,
    resume,
)
from maskov.errors import Interrupted
from maskov.execution.buffers import SiteBuffers
from maskov.execution.recorded import RecordedSites, choose_first
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.runs import async_group as flight
from maskov.starts import Layout, fill
from small import tiny_bert

MODEL = tiny_bert("red green blue white black")


@pytest.fixture
def fixed_shapes(monkeypatch):
    monkeypatch.setattr(flight, "sampler_for", lambda *_: RecordedSites)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)


def test_delayed_acceptance_decides_as_it_does_elsewhere(monkeypatch):
    kernel = Metropolis(Raw(), delayed=DelayedAcceptance((1, 3)))
    settings = {"schedule": Schedule(epochs=5), "chains": 9, "length": (3, 11), "seed": 4}
    here = sample(MODEL, kernel, **settings)
    monkeypatch.setattr(flight, "sampler_for", lambda *_: RecordedSites)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    there = sample(MODEL, kernel, **settings)
    assert [one.ids for one in here.samples] == [one.ids for one in there.samples]
    assert (here.traces["passes"] == there.traces["passes"]).all()


def test_chains_with_the_most_steps_left_come_first(monkeypatch):
    """A run lasts as long as its longest chain: no shorter one may take its room."""
    waited = []

    class Watching(RecordedSites):
        def _choose_passes(self):
            slot, column, valid = super()._choose_passes()
            b, waits = self.buffers, self.buffers.slot_pending[:-1]
            left = (self.limit - b.epoch) * b.free.sum(1) - b.epoch_step
            served = torch.zeros_like(waits)
            served[slot[valid], column[valid]] = True
            late = (waits & ~served).any(1)
            if late.any():
                waited.append(1)
                assert left[served.any(1)].min() >= left[late].max()
            return slot, column, valid

    monkeypatch.setattr(flight, "sampler_for", lambda *_: Watching)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 32)
    settings = {"schedule": Schedule(epochs=3), "chains": 9, "length": (2, 14), "seed": 3}
    sample(MODEL, Metropolis(Raw()), token_budget=64, **settings)
    assert waited


def _usable(kernel, lengths, busy, monkeypatch):
    """Return how many of four slots each chain may fill when it begins."""
    monkeypatch.setattr("maskov.execution.recorded.BUSY_TOKENS", busy)
    scorer, rng = Scorer(MODEL), CounterRng(0)
    layout = Layout.blank(MODEL, lengths)
    state = layout.chains(MODEL, range(len(lengths)), max(lengths))
    state = kernel.init(fill(state, "masked", MaskedConditional(), scorer, rng), scorer)
    buffers = SiteBuffers.of(state, len(kernel.plan.stages), 0, 4, ring=4)
    temperatures = torch.ones(4, dtype=torch.float64)
    sampler = RecordedSites(kernel, kernel.plan, scorer, rng, buffers, temperatures)
    sampler.limit.fill_(4)
    return sampler._usable_slots().tolist()


def test_chains_with_more_steps_left_use_more_slots(monkeypatch):
    early = Metropolis(Raw(), delayed=DelayedAcceptance(1))
    assert _usable(early, [4, 4, 4, 4], 1, monkeypatch) == [1, 1, 1, 1]
    # The mean is 4, so that the last chain has three times the usual steps left.
    assert _usable(early, [2, 2, 2, 2, 4, 12], 1, monkeypatch) == [1, 1, 1, 1, 1, 3]
    # Without an early test a further slot costs as many passes as the first.
    whole = Metropolis(Raw(), delayed=DelayedAcceptance(0))
    assert _usable(whole, [2, 2, 2, 2, 4, 12], 1, monkeypatch) == [1, 1, 1, 1, 1, 1]


def test_few_chains_use_all_slots(monkeypatch):
    early = Metropolis(Raw(), delayed=DelayedAcceptance(1))
    # A first test is one pass of four tokens and two special ones: 24 tokens in all.
    assert _usable(early, [4, 4, 4, 4], 48, monkeypatch) == [2, 2, 2, 2]
    assert _usable(early, [4, 4, 4, 4], 1000, monkeypatch) == [4, 4, 4, 4]


def test_a_run_goes_on_after_any_round(tmp_path, fixed_shapes, monkeypatch):
    """In float32, where another batch would round differently: the same bytes."""
    model = tiny_bert("red green blue white black", dtype=torch.float32)
    settings = {"schedule": Schedule(epochs=5), "chains": 7, "length": (3, 8), "seed": 4}
    whole = sample(model, Metropolis(Raw()), out=tmp_path / "whole", **settings)
    rounds = []

    class Stopping(RecordedSites):
        def advance(self):
            rounds.append(1)
            if len(rounds) % 6 == 0:
                raise Interrupted("asked to stop")
            super().advance()

    monkeypatch.setattr(flight, "sampler_for", lambda *_: Stopping)
    with pytest.raises(Interrupted):
        sample(model, Metropolis(Raw()), out=tmp_path / "cut", **settings)
    stops = 1
    while True:
        try:
            run = resume(tmp_path / "cut", model)
            break
        except Interrupted:
            stops += 1
    assert stops >= 3
    assert [one.to_json() for one in run.samples] == [one.to_json() for one in whole.samples]
    for name, trace in whole.traces.items():
        assert trace.tobytes() == run.traces[name].tobytes()


def test_choosing_under_a_budget():
    wanted = torch.tensor([True, False, True, True, True, False, True])
    cost = torch.tensor([3, 100, 3, 5, 1, 1, 1])
    chosen = choose_first(wanted, cost, budget=11, places=5)
    assert chosen.index[chosen.valid].tolist() == [0, 2, 3]
    assert chosen.taken.tolist() == [True, False, True, True, False, False, False]
    assert chosen.place[chosen.taken].tolist() == [0, 1, 2]
    few = choose_first(wanted, cost, budget=100, places=2)
    assert few.index.tolist() == [0, 2]
    none = choose_first(torch.zeros(7, dtype=torch.bool), cost, budget=100, places=2)
    assert not none.valid.any()
    assert not none.taken.any()
