"""Every engine makes the decisions of the reference, `Metropolis.step`, on tiny float64 models.

Batches of other shapes round differently, so bytes cannot be compared: tokens and decisions are
equal, and energies agree to 1e-9.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from maskov import (
    DelayedAcceptance,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Norm,
    Population,
    Raw,
    Schedule,
    Sweep,
)
from maskov.energies.counting import Length, PredictedLength
from maskov.energies.ordered import Ordered
from maskov.execution.recorded import RecordedSites, RecordedWindows
from maskov.execution.site_rounds import SiteRounds
from maskov.execution.window_rounds import WindowRounds
from maskov.moves import Resize, Site, Span
from small import mixed, sample, tiny_bert
from tiny_translation import SOURCES, conditional

MODEL = tiny_bert("red green blue white black")
COOLING = Schedule(epochs=3, target_temperature=LinearSchedule(1.5, rate=0.2, floor=0.8))
TEXTS = ["red green blue white black", "black black white green red", "blue red blue red"]
TEMPLATES = ["red [MASK] blue [MASK] [MASK] red", "[MASK] green", "red blue [MASK] white"]
DECISIONS = (
    "accepted", "novel", "proposed_novel", "steps", "irreversible", "tokens", "rejected",
    "lengths",
)  # fmt: skip
HOT, CUT = MaskedConditional(temperature=1.4), MaskedConditional(top_k=2)
LENGTHS, LONGER = ({"chains": 9, "length": (least, 8)} for least in (2, 3))
# Each chain reads its own source.
READ = {"model": conditional().given(SOURCES), "chains": 2, "lengths": "drawn"}

SITES = {
    "raw": (Raw(), Site(HOT), 0, LENGTHS),
    "norm": (Norm(), Site(HOT), 0, LENGTHS),
    "sum": (Raw() + 0.5 * Norm(), Site(positions=Sweep("left-to-right")), 0, LENGTHS),
    "early test": (Raw(), Site(HOT), 2, LENGTHS),
    "early tests": (Norm(), Site(HOT), (1, 3), LENGTHS),
    "frozen": (Norm(), Site(HOT), 1, {"chains": 4, "templates": TEMPLATES}),
    "no way back": (Raw(), Site(CUT), 0, {"chains": 4, "texts": TEXTS}),
    "translations": (Norm(), Site(HOT), 0, READ),
    "translations, early test": (Raw(), Site(HOT), 2, READ),
}
WINDOWS = {
    "raw": (Raw(), Span(HOT), 2, LENGTHS),
    "norm": (Norm(), Span(HOT), (1, 3), LENGTHS),
    "sum": (Raw() + 0.5 * Norm(), Span(sizes=(1, 2, 3, 4)), 0, LENGTHS),
    "of all": (Norm(), Span(HOT, sizes=(20,)), 2, {"chains": 9, "length": (1, 8)}),
    "frozen": (Norm(), Span(HOT, sizes=(1, 2, 3)), 1, {"chains": 4, "templates": TEMPLATES}),
    "no way back": (Raw(), Span(MaskedConditional(top_k=3)), 0, {"chains": 4, "texts": TEXTS}),
    "translations": (Norm(), Span(HOT, (1, 2, 3)), 2, READ),
}
BLOCKS = Site(HOT, Sweep(block=3))
ORDERS = Ordered("left-to-right") + 0.7 * Ordered("right-to-left")
COOL = Ordered("right-to-left", temperature=0.8)
FILLED = {"chains": 4, "templates": TEMPLATES}
# Lengths may become any of these.
RESIZED = {"chains": 9, "length": (3, 7), "length_prior": "none"}
LONG = {"chains": 9, "length": (5, 8)}
SAMPLED = {"model": READ["model"], "chains": 3, "lengths": "top"}
WEIGHED = RESIZED | {"length_prior": "3:1,4:2,5:4,6:2,7:1"}
SIZED = Norm() + 0.5 * PredictedLength()
MORE = {
    "sites in groups": (Norm(groups=3), Site(HOT), 0, LENGTHS),
    "spans in groups": (Raw(groups=4), Span(HOT, sizes=(1, 2, 3)), 0, LENGTHS),
    "long spans in groups": (Norm(groups=2), Span(HOT, sizes=(4,)), 0, LENGTHS),
    "groups, early test": (Raw(groups=3), Span(HOT), 1, LENGTHS),
    "more groups than positions": (Raw(groups=20), Span(HOT), 0, LENGTHS),
    "blocks": (Norm(), BLOCKS, 2, LONGER),
    "blocks in groups": (Raw(groups=2), BLOCKS, 0, LONGER),
    "blocks, no way back": (
        Raw(),
        replace(BLOCKS, conditional=CUT),
        0,
        {"chains": 4, "texts": TEXTS},
    ),
    "sites and spans": (Raw(), (Site(HOT), Span(HOT)), 2, LENGTHS),
    "spans, blocks and sites": (Norm(), (Span(HOT), BLOCKS, Site(HOT)), (1, 3), LONGER),
    "mixed in groups": (Norm(groups=3), (Site(HOT), Span(HOT)), 0, LENGTHS),
    "frozen, mixed": (Norm(), (Span(HOT), Site(HOT)), 1, {"chains": 4, "templates": TEMPLATES}),
    "translations, blocks": (Raw(), BLOCKS, 2, READ),
    "inserting": (Raw(), Resize(HOT), 0, RESIZED),
    "resizing": (Norm(), Resize(HOT, ((1, 2), (2, 3))), 2, RESIZED),
    "resizing, mixed": (Raw(), (Site(HOT), Resize(HOT), Span(HOT)), 2, RESIZED),
    "resizing in groups": (Norm(groups=3), (Span(HOT), Resize(HOT, ((1, 3), (0, 2)))), 0, RESIZED),
    "resizing in groups, early test": (Raw(groups=3), (Span(HOT), Resize(HOT)), 1, RESIZED),
    "by length": (Raw() + 0.5 * Length(5), (Span(HOT), Resize(HOT)), 2, WEIGHED),
    "ordered": (Norm() + 0.5 * Ordered(), Span(HOT), 2, LENGTHS),
    "ordered, frozen": (0.3 * Ordered() + Raw(), (Site(HOT), Span(HOT)), 1, FILLED),
    "two orders": (ORDERS + 0.4 * Raw() + 0.2 * COOL, (Span(HOT), Site(HOT)), (1, 3), LONG),
    "ordered, in groups": (Norm(groups=3) + 0.5 * Ordered(), (Site(HOT), Span(HOT)), 0, LENGTHS),
    "ordered, translations": (Norm() + Ordered(), (BLOCKS, Span(HOT)), 0, READ),
    "translations of any length": (
        SIZED,
        (Span(HOT), Resize(HOT), Resize(HOT, ((1, 2),))),
        2,
        SAMPLED,
    ),
}
ENGINES = {
    SiteRounds: (SITES, [{}, {"slots": 3}, {"resident": 5, "slots": 2}]),
    RecordedSites: (SITES, [{}, {"slots": 3}, {"resident": 5, "token_budget": 128}]),
    WindowRounds: (WINDOWS | MORE, [{}, {"resident": 5}]),
    RecordedWindows: (WINDOWS | MORE, [{}, {"resident": 5}, {"token_budget": 64}]),
}


CASES = [
    pytest.param(engine, moves[name], way, id=f"{engine.__name__}-{name}-{way}")
    for engine, (moves, ways) in ENGINES.items()
    for number, name in enumerate(moves)
    # Some in every way, the others in one of them in turn.
    for way in (ways if name in ("norm", "translations") else [ways[number % len(ways)]])
]


def _sampled(move, schedule=COOLING, **way):
    energy, moves, nearest, inputs = move
    weights = (1.0, *[2.0] * (len(moves) - 1)) if isinstance(moves, tuple) else ()
    kernel = mixed(energy, moves, nearest, weights=weights)
    settings = {"model": MODEL, "seed": 2, "thin": 1, **inputs, **way}
    return sample(kernel=kernel, schedule=schedule, **settings)


@cache
def _reference(number):
    return _sampled([*SITES.values(), *WINDOWS.values(), *MORE.values()][number], lock_step=True)


@pytest.mark.parametrize(("engine", "move", "way"), CASES)
def test_every_engine_decides_like_the_reference(engine, move, way, monkeypatch):
    plain = _reference([*SITES.values(), *WINDOWS.values(), *MORE.values()].index(move))
    rounds = []

    class Counted(engine):
        def advance(self):
            rounds.append(1)
            super().advance()

    for module in ("runs.task_runner", "workers.pools"):
        monkeypatch.setattr(f"maskov.{module}.sampler_for", lambda *_: Counted)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    monkeypatch.setattr("maskov.execution.recorded._PLACES_FILLED", (2, 4, 64))
    found = _sampled(move, **way)
    assert rounds
    assert [one.ids for one in found.samples] == [one.ids for one in plain.samples]
    assert 0 < plain.traces["novel"].sum() < plain.traces["proposed_novel"].sum()
    for name in (*DECISIONS, *({"expert_calls"} & plain.traces.keys())):
        assert (found.traces[name] == plain.traces[name]).all(), name
    for name in ("energy_raw", "energy_norm", "energy_target"):
        same = np.isclose(found.traces[name], plain.traces[name], 0, 1e-9, equal_nan=True)
        assert same.all(), name
    passes, known = found.traces["passes"].sum(), plain.traces["passes"].sum()
    if plain.traces["irreversible"].any():  # rejected without a pass
        assert passes < known
    elif "slots" not in way:  # further slots test proposals that are never reached
        assert passes == known


@pytest.mark.parametrize("engine", [WindowRounds, RecordedWindows])
@pytest.mark.parametrize(
    ("target", "start", "inputs"),
    [
        # The start is a part of the target, or another distribution with the same order.
        (Norm() + 0.5 * Ordered(), Ordered(), {"length": (6, 6)}),
        (0.3 * Raw() + Ordered(), Ordered(temperature=0.7), {"length": (5, 5)}),
        (Norm(), Ordered(seed=2), {"templates": TEMPLATES}),
    ],
)
def test_populations_move_in_rounds_as_in_lock_step(engine, target, start, inputs, monkeypatch):
    moved = Metropolis(target, Site(HOT), 0.8, DelayedAcceptance(2))
    kernel = Population(moved, start, 4, (0.2, 0.5, 1.0), moves=7, longer=2)
    settings = {"model": MODEL, "seed": 3, "chains": 8, "thin": 1, **inputs}
    plain = sample(kernel=kernel, schedule=Schedule(epochs=3), **settings)
    made = []

    class Counted(engine):
        def __init__(self, *arguments, **more):
            made.append(1)
            super().__init__(*arguments, **more)

    monkeypatch.setattr("maskov.execution.population_rounds.sampler_for", lambda *_: Counted)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    found = sample(kernel=kernel, schedule=Schedule(epochs=3), **settings)
    assert made == [1], "what was recorded for a point serves the next"
    assert [one.ids for one in found.samples] == [one.ids for one in plain.samples]
    assert [one.ancestor for one in found.samples] == [one.ancestor for one in plain.samples]
    for name in (*DECISIONS, "passes"):
        assert (found.traces[name] == plain.traces[name]).all(), name
    for name in ("energy_raw", "energy_norm", "energy_target", "log_weight"):
        assert np.allclose(found.traces[name], plain.traces[name], 0, 1e-9), name
    assert 0 < plain.traces["novel"].sum() < plain.traces["proposed_novel"].sum()
