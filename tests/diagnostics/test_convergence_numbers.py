"""Nested R-hat, effective sizes and Monte Carlo errors, against ArviZ and against theory."""

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats as arviz
from made_up_runs import autoregressive

from maskov.diagnostics.convergence import (
    Convergence,
    autocorrelation,
    convergence,
    integrated_time,
    is_constant,
    nested_r_hat,
    r_hat_limit,
)

NOTHING = Convergence()


@pytest.mark.parametrize("shape", [(60, 4), (25, 30), (40, 40)])
def test_the_sizes_are_those_of_arviz_with_chains_and_draws_the_right_way_round(shape):
    draws = autoregressive(0.7, *shape) + np.linspace(0, 1, shape[1])
    found, chains = convergence(draws), draws.T
    assert found.ess_bulk == float(arviz.ess(chains))
    assert found.ess_tail == float(arviz.ess(chains, method="tail", prob=(0.05, 0.95)))
    assert found.mcse == float(arviz.mcse(chains))


def test_nested_r_hat_is_that_of_thirds_less_the_noise_of_their_means():
    """ArviZ's, with chains as superchains, has the variance of two noisy means above 1."""
    draws = autoregressive(0.5, 60, 50) + np.linspace(0, 1, 50)
    thirds = np.concatenate([draws[:20].T, draws[-20:].T])
    theirs = arviz.rhat_nested(thirds, np.tile(np.arange(50), 2), method="identity")
    noise = np.var(draws[:20].mean(0) - draws[-20:].mean(0)) / 4 / draws.var(0).mean()
    assert nested_r_hat(draws) ** 2 == pytest.approx(float(theirs) ** 2 - noise, abs=0.03)


@pytest.mark.parametrize(("draws", "chains"), [(8, 200), (32, 16), (500, 4)])
def test_what_nested_r_hat_estimates(draws, chains):
    """Chains that are stuck at levels of variance v, and vary by 1, have 1 + v; drift adds."""
    random = np.random.default_rng(0)
    levels = np.sqrt(0.5) * np.linspace(-1, 1, chains) / np.linspace(-1, 1, chains).std(ddof=1)
    noise = random.normal(size=(200, draws, chains))
    for stuck, drift, expected in ((0, 0, 1), (1, 0, 1.5), (0, 2, 2.0), (1, 2, 2.5)):
        late = drift * (np.arange(draws) >= draws / 2)[:, None]
        squares = [nested_r_hat(one + stuck * levels + late) ** 2 for one in noise]
        within = 1 + (drift / 2) ** 2
        assert np.mean(squares) == pytest.approx(1 + (expected - 1) / within, abs=0.12)


@pytest.mark.parametrize(("draws", "chains"), [(8, 200), (32, 16), (500, 4), (20, 2)])
def test_the_limit_is_hardly_ever_reached_by_chance(draws, chains):
    """By 1 in 460 independent quantities at most, without what chains may remember."""
    random = np.random.default_rng(1)
    found = [nested_r_hat(random.normal(size=(draws, chains))) for _ in range(1000)]
    by_chance = np.sqrt(1 + r_hat_limit(draws, chains) ** 2 - 1.05**2)
    assert np.mean(np.array(found) > by_chance) <= 3 / 460
    assert r_hat_limit(draws, chains) < r_hat_limit(draws, chains, groups=10)
    assert r_hat_limit(10**6, chains) == pytest.approx(1.05, abs=1e-4)


# Of 200 seeds, the largest R-hat was 1.004, and the standard deviation of sizes and errors
# relative to theory 0.043, 0.041 and 0.024: five of these leave no false alarm in 10^6.
def test_independent_draws_are_worth_as_many():
    found = convergence(autoregressive(0.0, 1000, 4))
    assert found.r_hat < 1.01
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
    assert 1.8 < found.r_hat < 5  # of ranks, so that further apart makes it no worse
    assert found.ess_bulk < 10
    time, goes_on = integrated_time(autocorrelation([draws]), draws.size)
    assert goes_on
    assert time > 90


def test_chains_of_the_same_mean_and_another_width_do_not_agree():
    draws = autoregressive(0.0, 60, 4) * np.array([1, 1, 1, 9])
    assert nested_r_hat(draws) < 1.05 < 1.3 < convergence(draws).r_hat


def test_a_single_chain_has_a_size_and_no_r_hat():
    found = convergence(autoregressive(0.3, 60, 1))
    assert found.r_hat is found.r_hat_limit is None
    assert found.ess_bulk > 10


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
    assert replace(convergence(draws), mean=None) == NOTHING


def test_one_chain_that_moves_is_enough_to_speak_of():
    draws = np.zeros((50, 4))
    draws[:, 2] = autoregressive(0.0, 50, 1)[:, 0]
    assert not is_constant(draws)
    assert convergence(draws).r_hat is not None


@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_nothing_is_claimed_of_too_few_draws(count):
    assert replace(convergence(autoregressive(0.0, max(count, 1), 4)[:count]), mean=None) == NOTHING
    assert convergence(autoregressive(0.0, 8, 4)).r_hat is not None


def test_a_tail_without_values_has_no_size():
    draws = np.zeros((100, 2))
    draws[::50] = -1  # so few that both quantiles are the largest value
    assert float(arviz.ess(draws.T, method="tail", prob=(0.05, 0.95))) == 200
    assert convergence(draws).ess_tail is None
    assert convergence(draws).ess_bulk is not None
