"""Runs as long as a number of masked passes."""

from __future__ import annotations

import pytest

from maskov import InputError, Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.moves import Resize, Site, Span
from maskov.sampling import schedule_for_passes
from small import tiny_bert

# Of a kind whose chains move: the cost of an epoch does not drift.
MODEL = tiny_bert("red green blue white black", initializer_range=0.2)
KERNELS = {
    "site": (Metropolis(Raw()), {"length": 8}),
    "spans": (Metropolis(Norm(), Span()), {"length": 8}),
    "resized": (
        Mixture((Metropolis(Norm(), Site()), Metropolis(Norm(), Resize()))),
        {"length": (3, 5), "length_prior": "none"},
    ),
}


@pytest.mark.parametrize("name", ["site", "spans", pytest.param("resized", marks=pytest.mark.slow)])
def test_passes_are_about_what_was_asked_for(name):
    """Within a fifth: eight other chains foretell what these will cost."""
    kernel, settings = KERNELS[name]
    run = sample(MODEL, kernel, chains=16, passes=150, seed=1, **settings)
    spent = run.traces["passes"].sum(0).mean()
    assert 120 < spent < 180


def test_the_epochs_do_not_depend_on_the_start():
    found = {
        schedule_for_passes(MODEL, Metropolis(Raw()), Schedule(), 900, chains=1, texts=[text])
        for text in ("red red red red", "blue green white black", "white white black black")
    }
    assert len(found) == 1


def test_refusals():
    with pytest.raises(InputError, match="1 or more"):
        sample(MODEL, Metropolis(Raw()), passes=0)
    with pytest.raises(InputError, match="not both"):
        sample(MODEL, Metropolis(Raw()), passes=100, until="converged")
    with pytest.raises(InputError, match="all of them burn-in"):
        sample(MODEL, Metropolis(Raw()), Schedule(epochs=100, burn_in=99), passes=100, length=6)
