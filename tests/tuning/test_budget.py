"""Runs as long as a number of masked passes, and what a run chooses by measurement.

The law of (state, choice) after a run that starts at its target must be target × law of the choice.
That holds if the choice is independent of the start and of the random numbers of the run, and every
possible choice leaves the target invariant.
"""

import pytest
import torch

from maskov import Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.energies.counting import Length, LengthPrior
from maskov.exact import all_sequences, distribution
from maskov.models.scorer import Scorer
from maskov.moves import Resize, Site, Span
from maskov.random import CounterRng
from maskov.starts import Layout
from maskov.tuning import EVEN, FIRST_CHAIN, tune
from small import few_discarded_chains, random_table, tiny_bert
from stopped_runs import Heard

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
    run = sample(MODEL, Metropolis(Raw()), passes=100, thin=10, chains=1, length=3)
    assert len(run.samples) == run.manifest.schedule.epochs // 10 > 0


def test_a_cheaper_burn_in_leaves_more_epochs():
    schedule = Schedule(burn_in=10, burn_in_energy="raw(groups=2)")
    kernel = Metropolis(Raw(), Span())
    run = sample(MODEL, kernel, schedule, chains=16, passes=400, length=8, seed=1)
    assert 320 < run.traces["passes"].sum(0).mean() < 480
    cheap, dear = run.traces["passes"][1:10].mean(), run.traces["passes"][11:].mean()
    assert cheap < dear / 2


@pytest.mark.parametrize("passes", [1, 40])
def test_few_passes_shorten_the_automatic_burn_in(passes):
    schedule = sample(MODEL, chains=2, passes=passes, length=6).manifest.schedule
    assert schedule.epochs < 16
    assert schedule.burn_in <= schedule.epochs // 2
    assert (schedule.burn_in_energy is None) == (schedule.burn_in == 0)


TABLE = random_table((1, 3), size=2)
MOVES = (Site(), Resize(pairs=((0, 1),)))
SHORT = {"schedule": Schedule(epochs=1), "chains": 1, "length": (1, 3), "progress": False}


def kernel(energy, temperature=1.0):
    return Mixture(tuple(Metropolis(energy, move, temperature) for move in MOVES))


def shares(energy, tuning, temperature):
    """Return the share of each length under the weights found, by enumeration."""
    start = all_sequences(TABLE, 1, 3)
    whole = energy + temperature * LengthPrior(tuning.first_length, tuning.lengths)
    law = distribution(TABLE, whole, start.tokens, temperature, start.lengths)
    return torch.stack([law[start.lengths == n].sum() for n in (1, 2, 3)])


@pytest.mark.parametrize(
    ("energy", "temperature"),
    [(Norm() + Length(3.0, 0.5), 1.0), pytest.param(Raw(), 0.5, marks=pytest.mark.slow)],
)
def test_lengths_are_about_even_however_short_an_epoch_is(energy, temperature):
    """Within twice the factor that visits of the discarded chains kept; an epoch has two steps."""
    run = sample(TABLE, kernel(energy, temperature), **SHORT)
    even = 3 * shares(energy, run.manifest.tuning, temperature)
    assert run.manifest.tuning.evenness >= EVEN
    assert even.min() > EVEN / 2, even
    assert even.max() < 2 / EVEN, even


def test_what_was_not_reached_is_said_and_kept(monkeypatch):
    monkeypatch.setattr("maskov.tuning._LENGTH_STEPS", 4)
    monkeypatch.setattr("maskov.tuning._MEASURED", 1)
    heard = Heard()
    run = sample(TABLE, kernel(Norm() + Length(1.0, 0.1)), listener=heard, **SHORT)
    assert run.manifest.tuning.evenness < EVEN
    (note,) = (one for one in run.manifest.notes if "weights of lengths" in one)
    assert (note,) in heard.told["noted"]


PEAKED = random_table(4, 3, scale=2.5)
LENGTHS = random_table((2, 4), size=3)
KERNEL = Mixture((Metropolis(Norm(), Span()), Metropolis(Norm(), Resize())))


@pytest.fixture
def _few_steps(monkeypatch):
    """A dependence on the start is largest where chains make few steps."""
    few_discarded_chains(monkeypatch)


def _tuned(text: str, seed: int):
    layout = Layout([Layout.of_texts(LENGTHS, [text], 1).starts[0].resized([(2, 4)])])
    return tune(KERNEL, Schedule(epochs=1), "flat", layout, Scorer(LENGTHS), CounterRng(seed))


@pytest.mark.usefixtures("_few_steps")
def test_the_choice_does_not_depend_on_where_chains_start():
    chosen = {_tuned(text, 3) for text in ("a a a", "c a b")}
    assert len(chosen) == 1
    assert next(iter(chosen)).passes > 0  # it did measure


@pytest.mark.usefixtures("_few_steps")
def test_the_choice_depends_on_the_seed():
    assert len({_tuned("a a a", seed).lengths for seed in range(3)}) > 1


@pytest.mark.usefixtures("_few_steps")
def test_the_pilot_and_the_run_share_no_random_number(monkeypatch):
    asked = []
    uniform = CounterRng.uniform

    def watched(self, chain, *rest):
        asked.append(chain.clone())
        return uniform(self, chain, *rest)

    monkeypatch.setattr(CounterRng, "uniform", watched)
    _tuned("a a a", 0)
    assert asked
    assert all(bool((chains >= FIRST_CHAIN).all()) for chains in asked)
    asked.clear()
    sample(PEAKED, Metropolis(Raw()), Schedule(epochs=3), chains=5, length=4)
    assert asked
    assert all(bool((chains < FIRST_CHAIN).all()) for chains in asked)
