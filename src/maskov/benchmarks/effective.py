"""The effective sample size of some chains: how many independent draws they are worth.

The bulk estimate of Vehtari et al. (2021): chains are cut in half, values replaced by normal scores
of their ranks, and autocorrelations taken over all chains, so that chains that disagree count as
correlated. Their sum stops where Geyer's pairs stop being positive, and falls monotonically.

Chains that have not moved at all are still one independent draw each: a short run of many chains
flatters its effective size per second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

_FEWEST = 4

Values = npt.NDArray[np.float64]


def effective_sample_size(draws: Values) -> float | None:
    """Return the effective size of draws × chains; nothing where too few or all alike."""
    if len(draws) < _FEWEST or not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return None
    half = len(draws) // 2
    halves = normal_scores(np.concatenate([draws[:half], draws[-half:]], axis=1))
    count = halves.size
    # More than N·log10(N) cannot be claimed, however much the chains go against themselves.
    return float(count / max(_autocorrelation_time(halves), 1 / np.log10(count)))


def _autocorrelation_time(chains: Values) -> float:
    """Return 1 + 2·Σ ρ_t, with the pairs ρ_2k + ρ_2k+1 positive and falling."""
    length, number = chains.shape
    centred = chains - chains.mean(0)
    lags = [
        float((centred[: length - t] * centred[t:]).sum(0).mean() / length) for t in range(length)
    ]
    within = lags[0] * length / (length - 1)
    spread = float(chains.mean(0).var(ddof=1)) if number > 1 else 0.0
    total = lags[0] + spread
    correlation = [1.0, *(1 - (within - lag) / total for lag in lags[1:])]
    time, smallest = -1.0, np.inf
    for even, odd in zip(correlation[::2], correlation[1::2], strict=False):
        if even + odd <= 0:
            break
        smallest = min(smallest, even + odd)
        time += 2 * smallest
    return float(time)


def normal_scores(values: Values) -> Values:
    """Replace values by the normal quantiles of their ranks; equal ones share a rank."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    rank = (counts.cumsum() - (counts - 1) / 2)[index.reshape(values.shape)]
    chance = (rank - 3 / 8) / (values.size + 1 / 4)
    scores: Values = torch.special.ndtri(torch.from_numpy(chance)).numpy()
    return scores
