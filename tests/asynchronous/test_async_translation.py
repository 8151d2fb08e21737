"""Chains that translate decide alike in flight and in lock-step, whoever is beside them."""

import numpy as np
import pytest

from engines import sample
from maskov import (
    DelayedAcceptance,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Norm,
    Raw,
    Schedule,
)
from maskov.execution.recorded import RecordedSites, RecordedWindows
from maskov.moves import Site, Span
from maskov.runs import task_runner
from tiny_translation import SOURCES, conditional

MODEL = conditional()
GIVEN = MODEL.given(SOURCES)
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")
SCHEDULE = Schedule(epochs=3, target_temperature=LinearSchedule(1.5, rate=0.2, floor=0.8))
SETTINGS = {"schedule": SCHEDULE, "chains": 2, "lengths": "drawn", "seed": 2, "thin": 1}
WAYS = {
    "one at a time": {},
    "three at once": {"slots": 3},
    "in groups": {"resident": 5},
    "small batches": {"token_budget": 24},
}


def _kernel(energy, nearest: int = 0):
    return Metropolis(
        energy, Site(MaskedConditional(temperature=1.4)), delayed=DelayedAcceptance(nearest)
    )


def _chains(run) -> list[tuple]:
    return [(one.template, one.epoch, one.chain, one.ids) for one in run.samples]


@pytest.mark.parametrize(
    ("way", "energy"), list(zip(WAYS, (Raw(), Norm(), Raw(), Norm()), strict=True)), ids=str
)
def test_the_same_chains_as_in_lock_step(way, energy):
    kernel = _kernel(energy)
    plain = sample(GIVEN, kernel, lock_step=True, **SETTINGS)
    flown = sample(GIVEN, kernel, **SETTINGS, **WAYS[way])
    assert _chains(plain) == _chains(flown)
    assert len({one.template for one in flown.samples}) == len(SOURCES)
    assert 0 < plain.traces["novel"].sum() < plain.traces["proposed_novel"].sum()
    for name in (*COUNTS, "tokens", "rejected"):
        same = (plain.traces[name] == flown.traces[name]).all()
        # Further slots test proposals that are never reached: more passes, nothing else.
        assert same or (name == "passes" and "slots" in WAYS[way])
    for name in ("energy_raw", "energy_norm", "energy_target"):
        assert np.abs(plain.traces[name] - flown.traces[name]).max() < 1e-9


@pytest.mark.parametrize("nearest", [0, 2])
@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
def test_rounds_of_fixed_shapes_read_the_right_source(energy, nearest, monkeypatch):
    """As a GPU runs them, here without recording."""
    plain = sample(GIVEN, _kernel(energy, nearest), lock_step=True, **SETTINGS)
    monkeypatch.setattr(task_runner, "sampler_for", lambda *_: RecordedSites)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    recorded = sample(GIVEN, _kernel(energy, nearest), **SETTINGS)
    assert _chains(plain) == _chains(recorded)
    assert plain.traces["novel"].sum() > 0
    for name in (*COUNTS, "tokens", "rejected"):
        assert (plain.traces[name] == recorded.traces[name]).all()


@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
def test_recorded_windows_read_the_right_source(energy, monkeypatch):
    move = Span(MaskedConditional(temperature=1.4), (1, 2, 3))
    kernel = Metropolis(energy, move, delayed=DelayedAcceptance(2))
    plain = sample(GIVEN, kernel, lock_step=True, **SETTINGS)
    monkeypatch.setattr(task_runner, "sampler_for", lambda *_: RecordedWindows)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    recorded = sample(GIVEN, kernel, **SETTINGS)
    assert _chains(plain) == _chains(recorded)
    assert plain.traces["novel"].sum() > 0


@pytest.mark.parametrize("nearest", [0, 2])
def test_a_chain_does_not_know_who_else_is_translated(nearest):
    """Alone, among others, in other batches: the numbers of a chain are its own."""
    kernel = _kernel(Norm(), nearest)
    alone = sample(MODEL.given(SOURCES[1:2]), kernel, **SETTINGS)
    wanted = _chains(alone)
    assert len(wanted) == 2 * SCHEDULE.epochs
    companies = (
        ([SOURCES[1], *SOURCES], {}),
        ([SOURCES[1], SOURCES[2]], {"token_budget": 16}),
        ([SOURCES[1], SOURCES[1], "white"], {"resident": 4}),
    )
    for texts, way in companies:
        run = sample(MODEL.given(texts), kernel, **SETTINGS, **way)
        assert [one for one in _chains(run) if one[0] == 0] == wanted
    # With another source in its place the same chains go elsewhere.
    others = sample(MODEL.given([SOURCES[2]]), kernel, **SETTINGS)
    assert _chains(others) != wanted


def test_numbers_belong_to_chains_not_to_sources():
    """The same source twice is two chains that draw anew."""
    run = sample(MODEL.given([SOURCES[1]] * 2), _kernel(Raw()), **SETTINGS)
    first, second = ([one.ids for one in run.samples if one.template == row] for row in (0, 1))
    assert first != second
