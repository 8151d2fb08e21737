"""Nested R-hat, effective sample sizes and Monte Carlo error of one group of chains.

Nested R-hat (Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari & Gelman) compares superchains,
whose chains share a start. Here each chain is a superchain. Given the state in its middle, the
first and the last third of a chain are independent; if the kernel is reversible they are two
chains from that state, and the middle third is their warm-up. Chains that forget have thirds
without covariance, however short they are.

Effective sizes are those of ArviZ. Arrays are draws × chains, like the traces; ArviZ's own order
is chains × draws.
ArviZ is imported where it is needed: the import takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.thresholds import MIN_DRAWS, ROUNDING, r_hat_limit

Values = npt.NDArray[np.float64]

# The quantiles of Vehtari et al.; ArviZ's default depends on the user's settings.
_TAILS = (0.05, 0.95)


@dataclass(frozen=True)
class Convergence:
    """The numbers of one group; None where they cannot be estimated."""

    r_hat: float | None = None
    r_hat_limit: float | None = None
    ess_bulk: float | None = None
    ess_tail: float | None = None
    mcse: float | None = None


def convergence(draws: Values, groups: int = 1) -> Convergence:
    """Return the numbers of draws × chains in one of `groups`; a single chain has no R-hat.

    R-hat is the larger of that of the values and that of their distances from the median, of
    normal scores of ranks.
    """
    if len(draws) < MIN_DRAWS or is_constant(draws):
        return Convergence()
    from arviz_stats.base import array_stats

    r_hat = limit = None
    if draws.shape[1] > 1:
        folded = np.abs(draws - np.median(draws))
        r_hat = max(nested_r_hat(_scores(draws)), nested_r_hat(_scores(folded)))
        limit = r_hat_limit(len(draws), draws.shape[1], groups)
    chains = draws.T
    # Quantities with few distinct values can have zero variance where ArviZ divides by it.
    with np.errstate(divide="ignore", invalid="ignore"):
        # If no value lies beyond either quantile, ArviZ counts every draw as independent.
        has_tails = np.quantile(draws, _TAILS[0]) < draws.max()
        return Convergence(
            r_hat,
            limit,
            _finite(array_stats.ess(chains)),
            _finite(array_stats.ess(chains, method="tail", prob=_TAILS)) if has_tails else None,
            _finite(array_stats.mcse(chains)),
        )


def effective_size(draws: Values) -> float | None:
    """Return the effective size of the mean of draws × chains."""
    from arviz_stats.base import array_stats

    with np.errstate(divide="ignore", invalid="ignore"):
        return _finite(array_stats.ess(draws.T, method="mean"))


def nested_r_hat(draws: Values) -> float:
    """Return nested R-hat of two or more chains, from 1 to infinity.

    Its square is 1 plus the variance that is remembered, relative to that within chains: the
    covariance of the thirds over chains, and the drift from the one to the other. Both estimates
    have no bias.
    """
    third, chains = len(draws) // 3, draws.shape[1]
    first, last = draws[:third].mean(0), draws[-third:].mean(0)
    drift, spread = np.mean(last - first) ** 2, np.var(last - first, ddof=1) / chains
    remembered = np.cov(first, last)[0, 1] + (drift - spread) / 4
    within = draws.var(axis=0, ddof=1).mean()
    if remembered <= 0:
        return 1.0
    return float(np.sqrt(1 + remembered / within)) if within else np.inf


def is_constant(draws: Values) -> bool:
    """Whether no chain moves within either of its halves, up to rounding."""
    half = max(len(draws) // 2, 1)
    moved = max(np.ptp(draws[:half], axis=0).max(), np.ptp(draws[-half:], axis=0).max())
    return bool(moved <= ROUNDING * np.abs(draws).max())


def _scores(values: Values) -> Values:
    """Return the normal scores of ranks."""
    from scipy import stats

    ranks = stats.rankdata(values).reshape(values.shape)
    return np.asarray(stats.norm.ppf((ranks - 3 / 8) / (values.size + 1 / 4)))


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
