"""R-hat, effective sizes and Monte Carlo errors, against ArviZ and against theory."""

from __future__ import annotations

import numpy as np
import pytest
from arviz_stats.base import array_stats as arviz
from scipy import stats

from ar_chains import autoregressive
from maskov.diagnostics.convergence import Convergence, convergence, is_constant
from maskov.diagnostics.correlation import autocorrelation, integrated_time

NOTHING = Convergence()


def by_arviz(values: np.ndarray) -> Convergence:
    """Return ArviZ's own numbers of chains × draws, the order it expects unless told otherwise."""
    return Convergence(
        float(arviz.rhat(values)),
        float(arviz.ess(values)),
        float(arviz.ess(values, method="tail", prob=(0.05, 0.95))),
        float(arviz.mcse(values)),
    )


@pytest.mark.parametrize("shape", [(60, 4), (25, 30), (40, 40)])
def test_the_numbers_are_those_of_arviz_with_chains_and_draws_the_right_way_round(shape):
    draws = autoregressive(0.7, *shape) + np.linspace(0, 1, shape[1])
    found = convergence(draws)
    assert found == by_arviz(draws.T)
    # Had the axes been mixed up, R-hat would be another altogether.
    assert abs(found.r_hat - by_arviz(draws).r_hat) > 0.05


# Of 200 seeds, the largest R-hat was 1.0017, and the standard deviation of sizes and errors
# relative to theory 0.043, 0.041 and 0.024: five of these leave no false alarm in 10^6.
def test_independent_draws_are_worth_as_many():
    found = convergence(autoregressive(0.0, 1000, 4))
    assert 0.999 < found.r_hat < 1.003
    assert found.ess_bulk == pytest.approx(4000, rel=0.2)
    assert found.ess_tail == pytest.approx(4000, rel=0.2)
    assert found.mcse == pytest.approx(4000**-0.5, rel=0.12)


# The standard deviations, over 200 seeds, of each number relative to theory; five of them.
@pytest.mark.parametrize(
    ("correlation", "deviation", "by_lag"), [(0.5, 0.09, 0.021), (0.8, 0.13, 0.029)]
)
def test_an_autoregressive_chain_has_the_time_that_theory_says(correlation, deviation, by_lag):
    draws = autoregressive(correlation, 1000, 4)
    expected = (1 + correlation) / (1 - correlation)
    lags = autocorrelation([draws])
    assert lags[:6] == pytest.approx(correlation ** np.arange(6), abs=5 * by_lag)
    time, goes_on = integrated_time(lags, draws.size)
    assert time == pytest.approx(expected, rel=5 * deviation)
    assert not goes_on
    assert convergence(draws).ess_bulk == pytest.approx(4000 / expected, rel=5 * deviation)


def test_a_time_sums_falling_pairs_up_to_the_first_that_is_not_positive():
    lags = np.array([1.0, 0.5, 0.2, 0.1, 0.4, 0.3, -0.2, 0.1, 0.9, 0.9])
    time, goes_on = integrated_time(lags, 1000)
    # Pairs of 1.5, 0.3 and 0.7, of which the last may be no larger than the one before.
    assert float(time) == pytest.approx(-1 + 2 * (1.5 + 0.3 + 0.3))
    assert not goes_on
    time, goes_on = integrated_time(lags[:6], 1000)
    assert float(time) == pytest.approx(3.2)
    assert goes_on
    against_itself, _ = integrated_time(np.array([1.0, -0.9]), 1000)
    assert float(against_itself) == pytest.approx(1 / 3)


def test_groups_at_different_levels_correlate_as_each_does():
    parts = [autoregressive(0.5, 1000, 4), 1000 + autoregressive(0.5, 1000, 2, seed=1)]
    assert autocorrelation(parts)[:4] == pytest.approx(0.5 ** np.arange(4), abs=0.1)
    # Taken for one group they would never forget.
    assert autocorrelation([np.concatenate(parts, axis=1)])[:4].min() > 0.99


def test_two_chains_at_different_levels_do_not_agree():
    draws = autoregressive(0.0, 200, 2) + np.array([0, 20])
    found = convergence(draws)
    assert found.r_hat > 1.8  # of ranks, so that further apart makes it no worse
    assert found.ess_bulk < 10
    time, goes_on = integrated_time(autocorrelation([draws]), draws.size)
    assert goes_on
    assert time > 90


@pytest.mark.parametrize("length", [60, 61])
@pytest.mark.parametrize("change", ["none", "level", "width"])
def test_a_single_chain_is_compared_with_itself(length, change):
    chain, half = autoregressive(0.3, length, 1), length // 2
    if change == "level":
        chain[half:] += 4
    elif change == "width":
        chain[half:] *= 20
    halves = np.concatenate([chain[:half], chain[-half:]], axis=1)
    level = plain_r_hat(normal_scores(halves))
    width = plain_r_hat(normal_scores(abs(halves - np.median(halves))))
    assert convergence(chain).r_hat == pytest.approx(max(level, width))
    assert (level > 1.3, width > 1.3) == (change == "level", change == "width")


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Return the normal quantiles of the ranks; no two values are equal here."""
    ranks = 1 + values.flatten().argsort().argsort().reshape(values.shape)
    return stats.norm.ppf((ranks - 3 / 8) / (values.size + 1 / 4))


def plain_r_hat(halves: np.ndarray) -> float:
    """Return R-hat by its definition: all variance against that within."""
    n = len(halves)
    within = halves.var(axis=0, ddof=1).mean()
    return float(np.sqrt((n - 1) / n + halves.mean(0).var(ddof=1) / within))


@pytest.mark.parametrize(
    "draws",
    [
        np.full((50, 4), -3.0),
        np.full((50, 4), [1.0, 2.0, 3.0, 4.0]),
        np.repeat([[1.0, 5.0], [2.0, 6.0]], 25, axis=0),
        np.zeros((50, 1)),
        -300 + 1e-5 * autoregressive(0.0, 50, 4),
    ],
    ids=["equal", "each its own", "one step between the halves", "zero", "rounding"],
)
def test_nothing_is_claimed_of_chains_that_do_not_move(draws):
    assert is_constant(draws)
    assert convergence(draws) == NOTHING


def test_one_chain_that_moves_is_enough_to_speak_of():
    draws = np.zeros((50, 4))
    draws[:, 2] = autoregressive(0.0, 50, 1)[:, 0]
    assert not is_constant(draws)
    assert convergence(draws).r_hat is not None


@pytest.mark.parametrize("count", [0, 1, 4, 19])
def test_nothing_is_claimed_of_too_few_draws(count):
    assert convergence(autoregressive(0.0, max(count, 1), 4)[:count]) == NOTHING
    assert convergence(autoregressive(0.0, 20, 4)).r_hat is not None


def test_a_tail_without_values_has_no_size():
    draws = np.zeros((100, 2))
    draws[::50] = -1  # so few that both quantiles are the largest value
    assert float(arviz.ess(draws.T, method="tail", prob=(0.05, 0.95))) == 200
    assert convergence(draws).ess_tail is None
    assert convergence(draws).ess_bulk is not None
