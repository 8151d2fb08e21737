"""Means and ratios with their standard errors, against numbers worked out by hand."""

import numpy as np
import pytest

from maskov.evaluation.texts import mean, ratio


def test_mean_and_its_error_by_hand():
    found = mean(np.array([1.0, 2.0, 6.0]))
    # Deviations −2, −1, 3: variance 14/2, of the mean 7/3.
    assert found.value == 3
    assert found.standard_error == pytest.approx((7 / 3) ** 0.5)


def test_ratio_and_its_error_by_hand():
    found = ratio(np.array([2.0, 6.0]), np.array([1, 2]))
    # 8/3; residuals ∓2/3, so the error of their mean is 2/3, in units of the mean whole 3/2.
    assert found.value == pytest.approx(8 / 3)
    assert found.standard_error == pytest.approx(4 / 9)


def test_error_of_a_ratio_agrees_with_the_jackknife():
    generator = np.random.default_rng(0)
    wholes = generator.integers(5, 40, 2000)
    parts = wholes * generator.gamma(4.0, 1.0, 2000)
    left_out = (parts.sum() - parts) / (wholes.sum() - wholes)
    jackknife = np.sqrt(1999 / 2000 * ((left_out - left_out.mean()) ** 2).sum())
    assert ratio(parts, wholes).standard_error == pytest.approx(jackknife, rel=1e-2)


def test_one_sentence_has_no_error():
    assert mean(np.array([3.0])).standard_error is None
    assert ratio(np.array([3.0]), np.array([2])).standard_error is None
