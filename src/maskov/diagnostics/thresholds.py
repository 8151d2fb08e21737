"""What is asked of a run before its numbers are trusted: the only place where limits stand.

R-hat and the effective size follow Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), "Rank-
normalization, folding, and localization: an improved R-hat for assessing convergence of MCMC".
"""

from __future__ import annotations

# R-hat below the first is good, below the second borderline, from there on not converged.
R_HAT_GOOD = 1.01
R_HAT_BORDERLINE = 1.05
# Effective draws of a whole run, in the bulk and in the tails.
ESS_ENOUGH = 400.0
# Rng of a chain below which nothing is estimated: halves of fewer than ten say nothing.
FEWEST_DRAWS = 20
# Energies that differ by less than this share of their size differ by rounding.
ROUNDING = 1e-6
# Lags at which correlations are looked for; what goes on for longer has a time of "at least".
MOST_LAGS = 200
# Beyond this nobody should be told to just run longer.
MOST_LONGER = 100.0


def times_longer(r_hat: float, ess: float) -> float:
    """Return how many times longer a run would have to be to pass both limits; 1 or more.

    Once chains have met, R-hat² − 1 falls like one over their length, and the effective size
    grows in proportion to it. Chains that have not met need longer: it is a lower bound.
    """
    by_r_hat = (r_hat**2 - 1) / (R_HAT_GOOD**2 - 1)
    return max(1.0, by_r_hat, ESS_ENOUGH / ess)
