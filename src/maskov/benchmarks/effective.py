"""The bulk effective sample size of Vehtari et al. (2021), without ArviZ and for short chains.

Chains are split in half, values are replaced by the normal scores of their ranks, and
autocorrelations are computed over all chains, so chains that disagree count as correlated. Their
sum follows Geyer's initial monotone sequence.

A chain that has not moved still counts as one independent draw, so a short run of many chains
overstates its effective size per second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from maskov.diagnostics.autocorrelation import integrated_time

_MIN_DRAWS = 4

Values = npt.NDArray[np.float64]


def effective_sample_size(draws: Values) -> float | None:
    """Return the effective size of draws × chains, or None if they are too few or constant."""
    if len(draws) < _MIN_DRAWS or not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return None
    half = len(draws) // 2
    halves = normal_scores(np.concatenate([draws[:half], draws[-half:]], axis=1))
    count = halves.size
    correlation = _autocorrelation(halves)
    time, _ = integrated_time(correlation[: len(correlation) // 2 * 2], count)
    return float(count / time)


def _autocorrelation(chains: Values) -> Values:
    """Return the autocorrelation at every lag, over all chains."""
    length, number = chains.shape
    centred = chains - chains.mean(0)
    covariance = np.array(
        [(centred[: length - lag] * centred[lag:]).sum(0).mean() / length for lag in range(length)]
    )
    within = covariance[0] * length / (length - 1)
    between = float(chains.mean(0).var(ddof=1)) if number > 1 else 0.0
    correlation: Values = 1 - (within - covariance) / (covariance[0] + between)
    correlation[0] = 1.0
    return correlation


def normal_scores(values: Values) -> Values:
    """Replace values by the normal quantiles of their ranks; ties share a rank."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    rank = (counts.cumsum() - (counts - 1) / 2)[index.reshape(values.shape)]
    probability = (rank - 3 / 8) / (values.size + 1 / 4)
    scores: Values = torch.special.ndtri(torch.from_numpy(probability)).numpy()
    return scores
