"""Chains in rounds do what chains in lock-step do, also in fixed shapes, and can be stopped.

That every engine makes the decisions of the reference is tested in `guard/test_engines.py`.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from maskov import (
    DelayedAcceptance,
    Gibbs,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Mixture,
    Norm,
    Population,
    Raw,
    Schedule,
    resume,
)
from maskov.energies import TextEnergy
from maskov.energies.counting import Length
from maskov.energies.ordered import Ordered
from maskov.energies.stages import nearness
from maskov.errors import Interrupted
from maskov.execution.buffers import AHEAD
from maskov.execution.recorded import (
    RecordedSites,
    RecordedWindows,
    choose_first,
    new_buffers,
    rounds_of,
)
from maskov.execution.site_rounds import SiteRounds
from maskov.execution.window_rounds import WindowRounds
from maskov.models.scorer import Scorer
from maskov.moves import Resize, Site, Span, Sweep
from maskov.random import CounterRng
from maskov.runs.state import GroupShape, GroupState, load_checkpoint, save_checkpoint
from maskov.types import Sequences
from small import mixed, random_state, sample, tiny_bert
from stopped_runs import Stopper

MODEL = tiny_bert("red green blue white black")
HOT = MaskedConditional(temperature=1.4)
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")
ENGINES = [SiteRounds, RecordedSites, WindowRounds, RecordedWindows]


def _everywhere(monkeypatch, kind):
    """Let chains go in these rounds on a CPU, too, where they can."""
    base = SiteRounds if issubclass(kind, SiteRounds) else WindowRounds
    for module in ("runs.task_runner", "workers.pools"):
        monkeypatch.setattr(
            f"maskov.{module}.sampler_for",
            lambda _, kernel: kind if rounds_of(kernel) is base else None,
        )
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    monkeypatch.setattr("maskov.execution.recorded._PLACES_FILLED", (2, 4, 64))


def _kernel(kind):
    move = Site() if issubclass(kind, SiteRounds) else Span()
    return Metropolis(Raw(), move, delayed=DelayedAcceptance(2))


@pytest.mark.parametrize(
    ("kind", "kernel", "more"),
    [
        *((kind, None, {}) for kind in ENGINES),
        # Three proposals of a chain under test at once, and proposals without a way back.
        (RecordedSites, Metropolis(Raw(), delayed=DelayedAcceptance(2)), {"slots": 3}),
        (RecordedSites, Metropolis(Norm(), Site(MaskedConditional(top_p=0.6))), {"resident": 2}),
        (RecordedWindows, mixed(Norm(groups=2), (Site(), Span())), {}),
        (RecordedWindows, mixed(Norm() + 0.5 * Ordered(), (Site(), Span())), {}),
        (
            RecordedWindows,
            mixed(Norm(), (Site(positions=Sweep(block=2)), Resize())),
            {"length_prior": "none"},
        ),
    ],
)
def test_a_run_goes_on_after_any_round(tmp_path, monkeypatch, kind, kernel, more):
    """In float32, where another batch would round differently: the same bytes."""
    model = tiny_bert("red green blue white black", dtype=torch.float32)
    kernel = kernel or _kernel(kind)
    slots, more = more.get("slots"), {name: more[name] for name in more if name != "slots"}
    settings = {"schedule": Schedule(epochs=4), "chains": 7, "length": (3, 8), "seed": 4} | more
    if slots is not None:
        monkeypatch.setattr(Scorer, "slots_for", lambda *_: slots)
    _everywhere(monkeypatch, kind)
    whole = sample(model, kernel, out=tmp_path / "whole", **settings)
    rounds = []

    class Stopping(kind):
        def advance(self):
            rounds.append(1)
            if len(rounds) % 5 == 0:
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


def test_populations_go_on_from_their_last_point(tmp_path, monkeypatch):
    """In float32 and of several lengths: the same bytes, whatever was recorded before the stop."""
    model = tiny_bert("red green blue white black", dtype=torch.float32)
    moved = Metropolis(Norm() + 0.5 * Ordered(), delayed=DelayedAcceptance(2))
    kernel = Population(moved, Ordered(), 12, (0.2, 0.4, 0.7, 1.0), moves=5)
    settings = {"schedule": Schedule(epochs=4), "chains": 24, "length": (3, 8), "seed": 4}
    monkeypatch.setattr(
        "maskov.execution.population_rounds.sampler_for", lambda *_: RecordedWindows
    )
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    whole = sample(model, kernel, out=tmp_path / "whole", **settings)
    stops = 0
    with pytest.raises(Interrupted):
        sample(model, kernel, out=tmp_path / "cut", stop=Stopper(60), **settings)
    while stops < 100:
        stops += 1
        try:
            run = resume(tmp_path / "cut", model, stop=Stopper(60 + 20 * stops))
            break
        except Interrupted:
            continue
    assert stops > 1
    assert [one.to_json() for one in run.samples] == [one.to_json() for one in whole.samples]
    for name, trace in whole.traces.items():
        assert trace.tobytes() == run.traces[name].tobytes(), name


@pytest.mark.parametrize("first", ["lock-step", "asynchronous"])
def test_a_run_goes_on_where_windows_are_not_recorded(tmp_path, monkeypatch, first):
    """From a CPU to a GPU and back: what was begun one way is ended that way."""
    kernel = Metropolis(Norm(), Span(), delayed=DelayedAcceptance(2))
    settings = {"schedule": Schedule(epochs=4), "chains": 6, "length": (4, 8), "seed": 4}
    whole = sample(MODEL, kernel, **settings)
    with monkeypatch.context() as patch:
        if first == "asynchronous":
            _everywhere(patch, RecordedWindows)
        with pytest.raises(Interrupted):
            sample(MODEL, kernel, out=tmp_path / "run", stop=Stopper(45), **settings)
    with monkeypatch.context() as patch:
        if first == "lock-step":
            _everywhere(patch, RecordedWindows)
        run = resume(tmp_path / "run", MODEL)
    assert [one.ids for one in run.samples] == [one.ids for one in whole.samples]
    for name in (*COUNTS, "tokens", "rejected"):
        assert (run.traces[name] == whole.traces[name]).all(), name


@pytest.mark.parametrize("kind", ENGINES)
def test_what_is_kept_is_what_the_model_says_of_the_tokens(kind):
    """After many moves the cached passes are still those of the current sequences."""
    kernel, scorer = _kernel(kind), Scorer(MODEL)
    state = kernel.init(random_state(MODEL, 12, 9), scorer)
    buffers = new_buffers(kind, kernel, MODEL, state, slots=3, ring=4)
    sampler = kind(kernel, scorer, CounterRng(7), buffers, [kernel] * 4)
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
    buffers = new_buffers(WindowRounds, kernel, MODEL, known, ring=AHEAD)
    sites = new_buffers(SiteRounds, kernel, MODEL, known, ring=AHEAD)
    shapes = [
        GroupShape(fresh, 5, 1, lambda: known.pass_cache.hidden[0], windows=windows)
        for windows in (True, False)
    ]
    narrow = buffers.tensors() | {"slot_logit": buffers.slot_logit[:, 1:]}
    for number, (kept, taken) in enumerate(
        [
            (buffers.tensors(), [True, False]),
            (sites.tensors(), [True, True]),
            (narrow, [False, False]),
        ]
    ):
        state = replace(fresh, begun=True, buffers=kept)
        save_checkpoint(tmp_path, number, state)
        loaded = [load_checkpoint(tmp_path, number, shape)[0] for shape in shapes]
        assert [one is not None for one in loaded] == taken


class OwnWindow(Span):
    def window(self, chain, step, free, rng):
        return super().window(chain, step, free, rng)


class OwnProposal(Span):
    def propose(self, chains, rows, scorer, rng):
        return super().propose(chains, rows, scorer, rng)


OwnKernel, OwnSite = type("OwnKernel", (Metropolis,), {}), type("OwnSite", (Site,), {})


@pytest.mark.parametrize(
    ("kernel", "rounds"),
    [
        (Metropolis(Raw()), SiteRounds),
        (Metropolis(Raw() + 2 * Norm(), Span()), WindowRounds),
        (Metropolis(Raw(), OwnWindow()), WindowRounds),
        (Metropolis(Raw(), OwnProposal()), None),
        (Metropolis(Raw(), OwnSite()), None),
        (Metropolis(Raw(), Site(positions=Sweep(block=2))), WindowRounds),
        (Metropolis(Raw(groups=2)), WindowRounds),
        (Metropolis(Raw() + Length(5), Resize()), WindowRounds),
        (Mixture((Metropolis(Raw()), Metropolis(Raw(), Span()))), WindowRounds),
        (Mixture((Metropolis(Raw()), Metropolis(Norm(), Span()))), None),
        (Mixture((Metropolis(Raw()), Metropolis(Raw(), OwnProposal()))), None),
        (Mixture((Metropolis(Raw()), Metropolis(Raw(), Span(HOT)))), None),
        (Metropolis(Raw() + TextEnergy(lambda texts: [0.0] * len(texts))), None),
        (OwnKernel(Raw(), Span()), None),
        (Gibbs(), None),
    ],
)
def test_what_goes_in_rounds(kernel, rounds):
    assert rounds_of(kernel) is rounds


def test_the_kernel_changes_from_epoch_to_epoch():
    """Forced epochs, then blocks in lock-step, then single sites in flight."""
    schedule = Schedule(epochs=9, force_accept=2, block=LinearSchedule(3.0, rate=1.0, floor=1.0))
    settings = {"schedule": schedule, "chains": 6, "length": 7, "seed": 3}
    kernel = Metropolis(Raw(), delayed=DelayedAcceptance(0))
    plain = sample(MODEL, kernel, lock_step=True, **settings)
    flown = sample(MODEL, kernel, **settings)
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    assert np.isnan(flown.traces["energy_target"][:2]).all()


@dataclass(frozen=True)
class CountsRed:
    """An energy of texts: so much for each red."""

    price: float = 0.5

    def __call__(self, texts):
        return [self.price * text.split().count("red") for text in texts]


def test_a_proposal_that_an_expert_rejects_costs_no_masked_pass():
    target = 0.1 * Norm() + 20 * TextEnergy(CountsRed())
    kernel = Metropolis(target, delayed=DelayedAcceptance(2))
    texts = ["white blue white blue green"]
    run = sample(MODEL, kernel, Schedule(epochs=20), chains=10, texts=texts, seed=5)
    novel = run.traces["proposed_novel"].sum()
    assert run.traces["passes"].sum() < novel * 4
    # Every novel proposal asks the expert, once.
    assert run.traces["expert_calls"].sum() == novel


def test_the_nearest_positions():
    place, lengths = torch.tensor([0, 2, 4, 1]), torch.tensor([5, 5, 5, 2])
    nearer = nearness(place, lengths, 6)
    chosen = (nearer < 3).int().tolist()
    assert chosen[0] == [0, 1, 1, 1, 0, 0]
    assert chosen[1] == [1, 1, 0, 1, 0, 0]  # in a tie the left one
    assert chosen[2] == [0, 1, 1, 1, 0, 0]
    assert chosen[3] == [1, 0, 0, 0, 0, 0]
    assert (nearer < 6).sum(1).tolist() == [4, 4, 4, 1]
    for count in range(1, 5):
        sizes = (nearer < count).sum(1)
        assert sizes.tolist() == [min(count, n - 1) for n in (5, 5, 5, 2)]


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

    _everywhere(monkeypatch, Watching)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 32)
    settings = {"schedule": Schedule(epochs=3), "chains": 9, "length": (2, 14), "seed": 3}
    sample(MODEL, Metropolis(Raw()), token_budget=64, **settings)
    assert waited


def test_choosing_under_a_budget():
    wanted = torch.tensor([True, False, True, True, True, False, True])
    cost = torch.tensor([3, 100, 3, 5, 1, 1, 1])
    chosen = choose_first(wanted, 5, cost, budget=11)
    assert chosen.index[chosen.valid].tolist() == [0, 2, 3]
    assert chosen.taken.tolist() == [True, False, True, True, False, False, False]
    assert chosen.place[chosen.taken].tolist() == [0, 1, 2]
    few = choose_first(wanted, 2, cost, budget=100)
    assert few.index.tolist() == [0, 2]
    none = choose_first(torch.zeros(7, dtype=torch.bool), 2, cost, budget=100)
    assert not none.valid.any()
    assert not none.taken.any()
