"""R-hat, effective sample sizes and Monte Carlo error of one group of chains, computed by ArviZ.

Arrays are draws × chains, like the traces; ArviZ's own order is chains × draws.
ArviZ is imported where it is needed: the import takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.thresholds import MIN_DRAWS, ROUNDING

Values = npt.NDArray[np.float64]

# The quantiles of Vehtari et al.; ArviZ's default depends on the user's settings.
_TAILS = (0.05, 0.95)


@dataclass(frozen=True)
class Convergence:
    """The numbers of one group; None where they cannot be estimated."""

    r_hat: float | None = None
    ess_bulk: float | None = None
    ess_tail: float | None = None
    mcse: float | None = None


def convergence(draws: Values) -> Convergence:
    """Return the numbers of draws × chains; a single chain's R-hat compares its halves."""
    if len(draws) < MIN_DRAWS or is_constant(draws):
        return Convergence()
    from arviz_stats.base import array_stats

    chains = draws.T
    # Quantities with few distinct values can have zero variance where ArviZ divides by it.
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = array_stats.rhat(chains) if len(chains) > 1 else _r_hat_of_halves(chains[0])
        # If no value lies beyond either quantile, ArviZ counts every draw as independent.
        has_tails = np.quantile(draws, _TAILS[0]) < draws.max()
        return Convergence(
            _finite(r_hat),
            _finite(array_stats.ess(chains)),
            _finite(array_stats.ess(chains, method="tail", prob=_TAILS)) if has_tails else None,
            _finite(array_stats.mcse(chains)),
        )


def mean_convergence(draws: Values) -> tuple[float | None, float | None]:
    """Return the split R-hat and the effective size of the mean, without ranks.

    For draws × chains of bounded values, at least one of which moves.
    """
    from arviz_stats.base import array_stats

    half = len(draws) // 2
    # ArviZ's own split requires two chains.
    halves = np.concatenate([draws[:half], draws[-half:]], axis=1).T
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = array_stats.rhat(halves, method="identity")
        return _finite(r_hat), _finite(array_stats.ess(draws.T, method="mean"))


def is_constant(draws: Values) -> bool:
    """Whether no chain moves within either of its halves, up to rounding."""
    half = max(len(draws) // 2, 1)
    moved = max(np.ptp(draws[:half], axis=0).max(), np.ptp(draws[-half:], axis=0).max())
    return bool(moved <= ROUNDING * np.abs(draws).max())


def _r_hat_of_halves(chain: Values) -> float:
    """Return the rank-normalised split R-hat of a single chain; ArviZ requires two chains.

    It is the larger of the R-hat of the values and that of their distances from the median.
    """
    from arviz_stats.base import array_stats
    from scipy import stats

    half = len(chain) // 2
    halves = np.stack([chain[:half], chain[-half:]])
    r_hats = []
    for values in (halves, np.abs(halves - np.median(halves))):
        ranks = stats.rankdata(values).reshape(values.shape)
        scores = stats.norm.ppf((ranks - 3 / 8) / (values.size + 1 / 4))
        r_hats.append(array_stats.rhat(scores, method="identity"))
    return float(np.fmax(*r_hats))


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
