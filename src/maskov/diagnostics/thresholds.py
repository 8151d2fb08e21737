"""The limits behind every verdict.

R-hat and effective sample sizes follow Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), "Rank-
normalization, folding, and localization: an improved R-hat for assessing convergence of MCMC".
"""

from __future__ import annotations

from dataclasses import dataclass

from maskov.config import Manifest

# R-hat below the first is good, below the second borderline, otherwise not converged.
R_HAT_GOOD = 1.01
R_HAT_BORDERLINE = 1.05
# Effective draws of a whole run, in the bulk and in the tails.
MIN_ESS = 400.0
# With fewer draws per chain nothing is estimated.
MIN_DRAWS = 20
# Energies that differ by less than this fraction of their size are equal up to rounding.
ROUNDING = 1e-6
# The largest number of lags; a longer autocorrelation time is reported as a lower bound.
MAX_LAGS = 200
# From this R-hat on chains disagree: it is not known that they will ever meet.
R_HAT_DISAGREE = 1.3
# Beyond this factor a longer run is no useful advice.
MAX_FACTOR = 100.0
# Effective draws that the outlook speaks of, unless a run asked for another number.
USEFUL_ESS = 100


@dataclass(frozen=True)
class Limits:
    """What counts as converged: R-hat below `r_hat`, at least `ess` effective draws."""

    r_hat: float = R_HAT_GOOD
    ess: float = MIN_ESS

    @classmethod
    def of(cls, manifest: Manifest) -> Limits:
        """Return the limits of a run: those it was to stop by, or the usual ones."""
        until = manifest.config.until
        return cls() if until is None else cls(R_HAT_BORDERLINE, float(until.effective))


def times_longer(r_hat: float, ess: float, limits: Limits | None = None) -> float:
    """Return how many times longer a run would have to be to pass both limits; at least 1.

    Once chains have mixed, R-hat² − 1 is inversely proportional to their length and the effective
    size is proportional to it. Chains that have not mixed need longer: it is a lower bound.
    """
    limits = limits or Limits()
    by_r_hat = (r_hat**2 - 1) / (limits.r_hat**2 - 1)
    return max(1.0, by_r_hat, limits.ess / ess)
