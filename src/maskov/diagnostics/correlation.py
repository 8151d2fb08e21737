"""Autocorrelation of an energy over groups of chains, and the integrated autocorrelation time.

As in the effective sample size, disagreement between chains counts as correlation: the variance
is that over all chains of a group, not only that within each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.thresholds import MAX_LAGS

Values = npt.NDArray[np.float64]


def number_of_lags(draws: int) -> int:
    """Return the number of lags, including 0, estimated from so many draws; it is even."""
    return min(draws // 2, MAX_LAGS) // 2 * 2


def autocorrelation(groups: Sequence[Values]) -> Values | None:
    """Return the autocorrelation at lags 0, 1, ... of groups of draws × chains of equal length.

    Each group has its own mean and each chain counts once. None if no chain ever moves.
    """
    from arviz_stats.base import array_stats

    draws = len(groups[0])
    lags = number_of_lags(draws)
    covariance, total = np.zeros(lags), 0.0
    for values in groups:
        chains = values.shape[1]
        by_lag = array_stats.autocov(values.T).mean(0)[: max(lags, 1)]
        between = float(values.mean(0).var(ddof=1)) if chains > 1 else 0.0
        # Relative to the unbiased variance within chains, as in ArviZ's effective sample size.
        covariance += chains * (by_lag + between - by_lag[0] / (draws - 1))
        total += chains * (by_lag[0] + between)
    if not lags or total == 0:
        return None
    correlation: Values = covariance / total
    correlation[0] = 1.0
    return correlation


def integrated_time(correlation: Values, count: int) -> tuple[Values, npt.NDArray[np.bool_]]:
    """Return 1 + 2·Σ ρ_t over the first axis, and whether that is only a lower bound.

    Geyer's rule: the pairs ρ_2k + ρ_2k+1 are summed while they are positive, and made to decrease.
    If they are still positive at the last lag, the time is a lower bound.
    The effective size of `count` draws is limited to count·log10(count).
    """
    pairs = correlation[0::2] + correlation[1::2]
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    decreasing = np.minimum.accumulate(pairs, axis=0)
    time = -1 + 2 * np.where(positive, decreasing, 0.0).sum(0)
    return np.asarray(np.maximum(time, 1 / np.log10(count))), np.asarray(positive[-1])
