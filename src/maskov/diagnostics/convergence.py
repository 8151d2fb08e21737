"""R-hat, effective sizes and the Monte Carlo error of one group of chains, as ArviZ has them.

Arrays here are draws × chains, like the traces; ArviZ is told so by the names of its axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.thresholds import FEWEST_DRAWS, ROUNDING

Values = npt.NDArray[np.float64]

NEEDS_ARVIZ = (
    "R-hat, effective sample sizes and Monte Carlo errors need arviz-stats: "
    "pip install 'maskov[diagnose]'"
)
_AXES = {"chain_axis": 1, "draw_axis": 0}
# ArviZ's own tails follow a setting of the user's; these are those of Vehtari et al.
_TAILS = (0.05, 0.95)


@dataclass(frozen=True)
class Convergence:
    """What ArviZ says of one group; all of it absent where there is nothing to say."""

    r_hat: float | None = None
    ess_bulk: float | None = None
    ess_tail: float | None = None
    mcse: float | None = None


def arviz_stats() -> Any:
    """Return ArviZ's functions of arrays, or nothing where they are not installed."""
    try:
        return import_module("arviz_stats.base").array_stats
    except ImportError:
        return None


def convergence(draws: Values) -> Convergence:
    """Return the numbers of draws × chains; a single chain's R-hat compares its halves."""
    arviz = arviz_stats()
    if arviz is None or len(draws) < FEWEST_DRAWS or is_constant(draws):
        return Convergence()
    # Quantities of few values can lack all spread where ArviZ divides by it.
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = arviz.rhat(draws, **_AXES) if draws.shape[1] > 1 else _r_hat_of_halves(draws[:, 0])
        # Where no value lies beyond either quantile, ArviZ would count every draw as independent.
        tails = np.quantile(draws, _TAILS[0]) < draws.max()
        return Convergence(
            _number(r_hat),
            _number(arviz.ess(draws, method="bulk", **_AXES)),
            _number(arviz.ess(draws, method="tail", prob=_TAILS, **_AXES)) if tails else None,
            _number(arviz.mcse(draws, method="mean", **_AXES)),
        )


def is_constant(draws: Values) -> bool:
    """Whether no chain moves within either of its halves, but for rounding."""
    half = max(len(draws) // 2, 1)
    moved = max(np.ptp(draws[:half], axis=0).max(), np.ptp(draws[-half:], axis=0).max())
    return bool(moved <= ROUNDING * np.abs(draws).max())


def _r_hat_of_halves(chain: Values) -> float:
    """Return the rank-normalised R-hat of a chain's halves, which ArviZ gives for two chains only.

    It is the larger of that of the values and that of their distances from the median.
    """
    half = len(chain) // 2
    halves = np.stack([chain[:half], chain[-half:]], axis=1)
    found = (
        arviz_stats().rhat(_normal_scores(values), method="identity", **_AXES)
        for values in (halves, np.abs(halves - np.median(halves)))
    )
    return float(np.fmax(*found))


def _normal_scores(values: Values) -> Values:
    """Replace values by the normal quantiles of their ranks; equal ones share a rank."""
    stats: Any = import_module("scipy.stats")  # ArviZ brings it
    rank = stats.rankdata(values).reshape(values.shape)
    scores: Values = stats.norm.ppf((rank - 3 / 8) / (values.size + 1 / 4))
    return scores


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
