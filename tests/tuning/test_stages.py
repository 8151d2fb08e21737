"""The early tests that discarded chains choose: what they expect, and what they take."""

from __future__ import annotations

import math

import pytest
import torch

from maskov import DelayedAcceptance, InputError, Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.models.scorer import Scorer
from maskov.moves import Site, Span
from maskov.random import CounterRng
from maskov.starts import Layout
from maskov.tuning.pilot import pilot_chains
from maskov.tuning.stages import (
    CANDIDATES,
    DEFAULT,
    Proposed,
    Table,
    choose_stages,
    expectations,
)
from small import tiny_bert

MODEL = tiny_bert("red green blue white black")


def _proposed(falls, place, known=0.0, tested=False):
    falls = torch.tensor(falls, dtype=torch.float64)
    changed = torch.zeros_like(falls, dtype=torch.bool)
    changed[torch.arange(len(falls)), torch.tensor(place)] = True
    base = torch.full((len(falls),), known, dtype=torch.float64)
    lengths = torch.full((len(falls),), falls.shape[1])
    return Proposed(changed, lengths, ~changed, falls, base, tested)


def test_expectations_by_hand():
    """Two proposals of three positions, worked out on paper."""
    proposed = _proposed([[0.0, -1.0, -2.0], [3.0, 0.0, -4.0]], [0, 1])
    moves, passes = expectations(proposed, ())
    assert moves.tolist() == pytest.approx([math.exp(-3), math.exp(-1)])
    assert passes.tolist() == [2.0, 2.0]
    # The nearest of the first is −1, then −2 is left; of the second +3, then −4.
    moves, passes = expectations(proposed, (1,))
    assert moves.tolist() == pytest.approx([math.exp(-3), math.exp(-4)])
    assert passes.tolist() == pytest.approx([1 + math.exp(-1), 2.0])


def test_expectations_of_two_early_tests_by_hand():
    proposed = _proposed([[0.0, -1.0, 0.5, -2.0]], [0])
    moves, passes = expectations(proposed, (1, 2))
    assert moves.item() == pytest.approx(math.exp(-1) * 1 * math.exp(-2))
    assert passes.item() == pytest.approx(1 + math.exp(-1) + math.exp(-1))


def test_what_was_tested_before_is_not_tested_again():
    """An expert that was asked first has passed by its own part of the ratio."""
    proposed = _proposed([[0.0, -1.0]], [0], known=-3.0, tested=True)
    moves, passes = expectations(proposed, ())
    assert moves.item() == pytest.approx(math.exp(-1))
    assert passes.item() == 1.0


def test_the_table_takes_the_best_and_ignores_a_near_tie():
    table = Table()
    assert table.choose() == ((), 1.0)
    table.moves[:], table.passes[:] = 10.0, 100.0
    assert table.choose() == ((), 1.0)
    table.moves[3] = 10.9
    assert table.choose()[0] == ()
    table.moves[3] = 20.0
    assert table.choose() == (CANDIDATES[3], 2.0)


def test_moves_of_probability_zero_do_no_harm():
    proposed = _proposed([[0.0, -math.inf, 0.0]], [0])
    for nearest in CANDIDATES:
        moves, passes = expectations(proposed, nearest)
        assert moves.item() == 0.0
        assert passes.isfinite().all()


def test_the_expected_gain_is_what_happens():
    """Moves per pass with the chosen tests beside those of one test, on other chains.

    Over 30 seeds the ratio of the gain that happened to the one that was expected had mean 1.007
    and standard deviation 0.064. Four deviations, which a pilot that expects no gain exceeds.
    """
    kernel, scorer, rng = Metropolis(Raw()), Scorer(MODEL), CounterRng(4)
    pilot = pilot_chains(Layout.blank(MODEL, [10] * 400), 400, kernel, scorer, rng)
    ((chosen, expected),) = choose_stages(kernel, pilot, 2, scorer, rng)
    assert expected > 1.1  # else there would be nothing to compare
    rates = {}
    for nearest in ((), chosen):
        kernel = Metropolis(Raw(), delayed=DelayedAcceptance(nearest))
        run = sample(MODEL, kernel, Schedule(epochs=2), chains=400, length=10, seed=4)
        rates[nearest] = run.traces["novel"].sum() / run.traces["passes"].sum()
    assert rates[chosen] / rates[()] == pytest.approx(expected, rel=4 * 0.064)


def test_each_part_of_a_mixture_has_early_tests_of_its_own():
    kernel = Mixture((Metropolis(Norm(), Site()), Metropolis(Norm(), Span())))
    run = sample(MODEL, kernel, Schedule(epochs=8), chains=80, length=4)
    assert len(run.manifest.tuning.stages) == 2
    assert run.manifest.tuning.passes > 0


def test_short_runs_take_the_default_and_stated_tests_stay():
    run = sample(MODEL, Metropolis(Raw()), Schedule(epochs=2), chains=2, length=5)
    assert run.manifest.tuning.stages == (DEFAULT,)
    assert run.manifest.tuning.passes == 0
    stated = Metropolis(Raw(), delayed=DelayedAcceptance((2, 5)))
    assert sample(MODEL, stated, Schedule(epochs=2), chains=2).manifest.tuning.stages == ()


@pytest.mark.parametrize("nearest", [(2, 1), (1, 1), (0, 2), -1])
def test_early_tests_know_more_and_more(nearest):
    with pytest.raises(InputError, match="more and more"):
        DelayedAcceptance(nearest)
