"""Autocorrelation and its sum over lags, of plain arrays.

Chains are compared with each other too: where they disagree, the variance of all is larger than
that within each, and the difference counts as correlation that has not died away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.thresholds import MOST_LAGS

Values = npt.NDArray[np.float64]


def lags_of(draws: int) -> int:
    """Return how many lags, 0 included, chains of so many draws can tell: an even number."""
    return min(draws // 2, MOST_LAGS) // 2 * 2


def autocorrelation(groups: Sequence[Values]) -> Values | None:
    """Return the autocorrelation at lags 0, 1, ... of groups of draws × chains of one length.

    Each group has its own mean, each chain counts once; nothing where nothing ever moves.
    """
    draws = len(groups[0])
    lags = lags_of(draws)
    common, total = np.zeros(lags), 0.0
    for values in groups:
        chains = values.shape[1]
        covariance = _autocovariance(values, lags).mean(1)
        spread = float(values.mean(0).var(ddof=1)) if chains > 1 else 0.0
        within = covariance[0] * draws / (draws - 1)
        variance = covariance[0] + spread
        common += chains * (variance - within + covariance)
        total += chains * variance
    if not lags or total == 0:
        return None
    found: Values = common / total
    found[0] = 1.0
    return found


def integrated_time(correlation: Values, count: int) -> tuple[Values, npt.NDArray[np.bool_]]:
    """Return 1 + 2·Σ ρ_t over the first axis, and where the sum had not come to its end.

    Geyer's rule: the pairs ρ_2k + ρ_2k+1 are summed while they are positive, and made to fall.
    Where they are still positive at the last lag, the time is at least what is returned.
    `count` draws in all cannot be worth more than count·log10(count).
    """
    pairs = correlation[0::2] + correlation[1::2]
    going = np.logical_and.accumulate(pairs > 0, axis=0)
    falling = np.minimum.accumulate(pairs, axis=0)
    time = -1 + 2 * np.where(going, falling, 0.0).sum(0)
    return np.asarray(np.maximum(time, 1 / np.log10(count))), np.asarray(going[-1])


def _autocovariance(values: Values, lags: int) -> Values:
    """Return the autocovariance of each chain by lag, about its own mean, by Fourier transform."""
    draws = len(values)
    spectrum = np.fft.rfft(values - values.mean(0), n=2 * draws, axis=0)
    covariance: Values = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[: max(lags, 1)] / draws
    return covariance
