"""Runs as long as a number of masked passes."""

import pytest

from maskov import InputError, Metropolis, Mixture, Norm, Raw, Run, Schedule, sample
from maskov.moves import Resize, Site, Span
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


def test_samples_are_kept_by_the_epochs_that_the_passes_pay_for():
    """Not by those of the schedule, of which there would be too few."""
    run = sample(MODEL, Metropolis(Raw()), passes=100, thin=10, chains=1, length=3)
    assert len(run.samples) == run.manifest.schedule.epochs // 10 > 0


def test_a_cheaper_burn_in_leaves_more_epochs():
    """Within a fifth, as without."""
    schedule = Schedule(burn_in=10, burn_in_energy="raw(groups=2)")
    kernel = Metropolis(Raw(), Span())
    run = sample(MODEL, kernel, schedule, chains=16, passes=400, length=8, seed=1)
    assert 320 < run.traces["passes"].sum(0).mean() < 480
    cheap, dear = run.traces["passes"][1:10].mean(), run.traces["passes"][11:].mean()
    assert cheap < dear / 2


def test_the_epochs_do_not_depend_on_the_start():
    found = {
        sample(MODEL, Metropolis(Raw()), passes=200, chains=1, texts=[text]).manifest.schedule
        for text in ("red red red red", "blue green white black")
    }
    assert len(found) == 1


@pytest.mark.parametrize("passes", [1, 40])
def test_few_passes_shorten_the_automatic_burn_in(passes):
    schedule = sample(MODEL, chains=2, passes=passes, length=6).manifest.schedule
    assert schedule.epochs < 16
    assert schedule.burn_in <= schedule.epochs // 2
    assert (schedule.burn_in_energy is None) == (schedule.burn_in == 0)


def test_few_passes_of_the_command(tmp_path, call):
    """A burn-in that was not asked for refuses no run."""
    words = ("sample", "--model", "untrained", "--passes", "40", "--length", "5", "--chains", "1",
             "--energy", "raw")  # fmt: skip
    assert call(*words, "--out", tmp_path / "run")[0] == 0
    schedule = Run.open(tmp_path / "run").manifest.schedule
    assert 0 < schedule.burn_in <= schedule.epochs // 2 < 8
    words = ("sample", "--model", "untrained", "--length", "5", "--passes")
    for more, said in (
        (("40", "--burn-in", "99"), "all of them burn-in"),
        (("1", "--burn-in-energy", "norm"), "drop --burn-in-energy"),
    ):
        code, _, err = call(*words, *more)
        assert code == 2
        assert said in err


def test_refusals():
    with pytest.raises(InputError, match="at least 1"):
        sample(MODEL, Metropolis(Raw()), passes=0)
    with pytest.raises(InputError, match="not both"):
        sample(MODEL, Metropolis(Raw()), passes=100, until="converged")
    with pytest.raises(InputError, match="all of them burn-in"):
        sample(MODEL, Metropolis(Raw()), Schedule(epochs=100, burn_in=99), passes=100, length=6)
