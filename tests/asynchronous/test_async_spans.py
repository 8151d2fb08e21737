"""Windows that are filled and tested asynchronously make the decisions of lock-step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from engines import sample
from maskov import (
    DelayedAcceptance,
    Gibbs,
    Metropolis,
    Norm,
    Raw,
    Schedule,
    resume,
)
from maskov.energies import TextEnergy
from maskov.errors import Interrupted
from maskov.execution.buffers import SiteBuffers, WindowBuffers
from maskov.execution.recorded import RecordedWindows, rounds_of
from maskov.execution.site_rounds import SiteRounds
from maskov.execution.window_rounds import WindowRounds
from maskov.models.scorer import Scorer
from maskov.moves import Site, Span, Sweep
from maskov.random import CounterRng
from maskov.runs.async_group import AHEAD
from maskov.runs.checkpoint import GroupShape, load, save
from maskov.runs.state import GroupState
from maskov.types import Sequences
from small import random_state, tiny_bert

MODEL = tiny_bert("red green blue white black")
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")


def _everywhere(monkeypatch, kind):
    """Let windows go asynchronously on a CPU, too."""
    for module in ("runs.async_group", "runs.task_runner", "workers.pools"):
        monkeypatch.setattr(
            f"maskov.{module}.sampler_for",
            lambda _, kernel: kind if rounds_of(kernel) is WindowRounds else None,
        )
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    monkeypatch.setattr("maskov.execution.recorded._WINDOWS_FILLED", (2, 4, 64))


@pytest.mark.parametrize("kind", [WindowRounds, RecordedWindows], ids=str)
def test_a_run_goes_on_after_any_round(tmp_path, monkeypatch, kind):
    """In float32, where another batch would round differently: the same bytes."""
    model = tiny_bert("red green blue white black", dtype=torch.float32)
    kernel = Metropolis(Raw(), Span(), delayed=DelayedAcceptance(2))
    settings = {"schedule": Schedule(epochs=4), "chains": 7, "length": (3, 8), "seed": 4}
    _everywhere(monkeypatch, kind)
    whole = sample(model, kernel, out=tmp_path / "whole", **settings)
    rounds = []

    class Stopping(kind):
        def advance(self):
            rounds.append(1)
            if len(rounds) % 6 == 0:
                raise Interrupted("asked to stop")
            super().advance()

    _everywhere(monkeypatch, Stopping)
    with pytest.raises(Interrupted):
        sample(model, kernel, out=tmp_path / "cut", **settings)
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


@pytest.mark.parametrize("first", ["lock-step", "asynchronous"])
def test_a_run_goes_on_where_windows_are_not_recorded(tmp_path, monkeypatch, first):
    """From a CPU to a GPU and back: what was begun one way is ended that way."""
    kernel = Metropolis(Norm(), Span(), delayed=DelayedAcceptance(2))
    settings = {"schedule": Schedule(epochs=4), "chains": 6, "length": (4, 8), "seed": 4}
    whole = sample(MODEL, kernel, **settings)
    calls = []

    def stop():
        calls.append(1)
        return len(calls) > 45

    with monkeypatch.context() as patch:
        if first == "asynchronous":
            _everywhere(patch, RecordedWindows)
        with pytest.raises(Interrupted):
            sample(MODEL, kernel, out=tmp_path / "run", stop=stop, **settings)
    with monkeypatch.context() as patch:
        if first == "lock-step":
            _everywhere(patch, RecordedWindows)
        run = resume(tmp_path / "run", MODEL)
    assert [one.ids for one in run.samples] == [one.ids for one in whole.samples]
    for name in (*COUNTS, "tokens", "rejected"):
        assert (run.traces[name] == whole.traces[name]).all(), name


@pytest.mark.parametrize("kind", [WindowRounds, RecordedWindows])
def test_what_is_kept_is_what_the_model_says_of_the_tokens(kind):
    kernel, scorer = Metropolis(Raw(), Span(), delayed=DelayedAcceptance(2)), Scorer(MODEL)
    state = kernel.init(random_state(MODEL, 12, 9), scorer)
    buffers = WindowBuffers.of(state, kernel.steps(state), 0, ring=4)
    heat = torch.ones(4, dtype=torch.float64)
    sampler = kind(kernel, kernel.plan, scorer, CounterRng(7), buffers, heat)
    sampler.limit.fill_(4)
    while sampler.slowest() < 4:
        sampler.advance()
    fresh = Scorer(MODEL).cache(Sequences(buffers.tokens, buffers.lengths))
    assert buffers.ring_counts[..., COUNTS.index("novel")].sum() > 20
    for name in ("hidden", "logit", "log_normaliser"):
        assert (getattr(buffers, name) - getattr(fresh, name)).abs().max() < 1e-10


def test_a_checkpoint_has_the_buffers_of_its_move(tmp_path):
    kernel, scorer = Metropolis(Raw(), Span()), Scorer(MODEL)
    fresh = GroupState.fresh(random_state(MODEL, 4, 5), 64)
    known = kernel.init(fresh.chains, scorer)
    buffers = WindowBuffers.of(known, kernel.steps(known), 0, ring=AHEAD)
    sites = SiteBuffers.of(known, 1, 0, 1, ring=AHEAD)
    shapes = [
        GroupShape(fresh, 5, 1, lambda: known.pass_cache.hidden[0], windows=windows)
        for windows in (True, False)
    ]
    narrow = buffers.tensors() | {"slot_logit": buffers.slot_logit[:, 1:]}
    for number, (kept, taken) in enumerate(
        [
            (buffers.tensors(), [True, False]),
            (sites.tensors(), [False, True]),
            (narrow, [False, False]),
        ]
    ):
        state = replace(fresh, begun=True, buffers=kept)
        save(tmp_path, number, state, {})
        loaded = [load(tmp_path, number, shape)[0] for shape in shapes]
        assert [one is not None for one in loaded] == taken


@dataclass(frozen=True)
class OwnWindow(Span):
    def window(self, chain, step, free, rng):
        return super().window(chain, step, free, rng)


@dataclass(frozen=True)
class OwnProposal(Span):
    def propose(self, chains, rows, scorer, rng):
        return super().propose(chains, rows, scorer, rng)


@dataclass(frozen=True)
class OwnKernel(Metropolis):
    pass


@dataclass(frozen=True)
class OwnSite(Site):
    pass


@pytest.mark.parametrize(
    ("kernel", "rounds"),
    [
        (Metropolis(Raw()), SiteRounds),
        (Metropolis(Raw() + 2 * Norm(), Span()), WindowRounds),
        (Metropolis(Raw(), OwnWindow()), WindowRounds),
        (Metropolis(Raw(), OwnProposal()), None),
        (Metropolis(Raw(), OwnSite()), None),
        (Metropolis(Raw(), Site(positions=Sweep(block=2))), None),
        (Metropolis(Raw(groups=2), Span()), None),
        (Metropolis(Raw() + TextEnergy(lambda texts: [0.0] * len(texts))), None),
        (OwnKernel(Raw(), Span()), None),
        (Gibbs(), None),
    ],
)
def test_what_goes_in_rounds(kernel, rounds):
    assert rounds_of(kernel) is rounds
