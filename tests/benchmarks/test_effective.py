"""The effective sample size against theory, extremes and another implementation."""

from __future__ import annotations

import numpy as np
import pytest

from ar_chains import autoregressive
from maskov.benchmarks.effective import effective_sample_size


# The estimate's relative standard deviation at this size was measured over 200 seeds; four of them
# leave a false alarm less than one chance in 10^4, and the size without its pairs no chance.
@pytest.mark.parametrize(
    ("correlation", "deviation"), [(-0.3, 0.03), (0.0, 0.02), (0.5, 0.03), (0.9, 0.07)]
)
def test_an_autoregressive_chain_has_the_size_that_theory_says(correlation, deviation):
    draws, chains = 4000, 8
    expected = draws * chains * (1 - correlation) / (1 + correlation)
    found = effective_sample_size(autoregressive(correlation, draws, chains))
    assert found == pytest.approx(expected, rel=4 * deviation)


def test_chains_that_disagree_are_worth_one_draw_each():
    random = np.random.default_rng(1)
    stuck = 100 * np.arange(16.0) + 0.01 * random.standard_normal((200, 16))
    assert 8 <= effective_sample_size(stuck) <= 24


def test_scale_and_place_do_not_matter_but_order_does():
    draws = autoregressive(0.8, 300, 4)
    size = effective_sample_size(draws)
    assert effective_sample_size(np.exp(3 * draws)) == pytest.approx(size)
    assert effective_sample_size(np.random.default_rng(2).permuted(draws, axis=0)) > 3 * size


@pytest.mark.parametrize("draws", [np.zeros((3, 4)), np.ones((50, 4)), np.full((50, 4), np.nan)])
def test_nothing_is_claimed_of_too_few_draws_equal_ones_or_none(draws):
    assert effective_sample_size(draws) is None


# In long chains; where a half has only four draws, arviz sums no pair but the first and always
# finds its upper limit, even for chains that have hardly moved.
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
@pytest.mark.parametrize(("draws", "chains"), [(200, 16), (1000, 4)])
def test_arviz_finds_the_same(correlation, draws, chains):
    diagnostics = pytest.importorskip("arviz_stats.base", reason="arviz-stats is not installed")
    values = autoregressive(correlation, draws, chains, seed=3)
    expected = diagnostics.array_stats.ess(values.T, chain_axis=0, draw_axis=1, method="bulk")
    assert effective_sample_size(values) == pytest.approx(float(expected), rel=0.1)
