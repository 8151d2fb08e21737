"""The limits behind every verdict."""

from __future__ import annotations

import math

# Nested R-hat at which chains still remember 9 % of a quantity's variance.
R_HAT = 1.05
# Chance that a run of independent draws is above a limit of R-hat, and the quantities that are
# judged in each group of chains: two or three energies, their spread, and token statistics.
_FALSE_ALARM, _QUANTITIES = 0.05, 23
# Effective draws of a whole run, in the bulk and in the tails, unless a run was given a number.
MIN_ESS = 100
# With fewer draws per chain nothing is estimated.
MIN_DRAWS = 8
# Energies that differ by less than this fraction of their size are equal up to rounding.
ROUNDING = 1e-6
# The largest number of lags; a longer autocorrelation time is reported as a lower bound.
MAX_LAGS = 200
# A run this many times as long is too far from what was measured to be advice.
MAX_FACTOR = 20.0


def r_hat_limit(draws: int, chains: int, groups: int = 1) -> float:
    """Return the limit of nested R-hat: `R_HAT`, and what chance adds to few, independent draws.

    The covariance over chains of the means of two independent stretches of n draws is a mean of
    chains − 1 products of independent normal numbers, divided by n. Such a mean is above
    √(2x/(chains − 1)) + x/(chains − 1) with a probability below exp(−x).
    """
    x = math.log(_QUANTITIES * groups / _FALSE_ALARM)
    chance = (math.sqrt(2 * x / (chains - 1)) + x / (chains - 1)) / (draws // 3)
    return math.sqrt(R_HAT**2 + chance)


def times_longer(r_hat: float | None, ess: float, needed: float) -> float:
    """Return how many times longer a run would have to be to pass both limits; at least 1.

    The effective size grows with the length. Of the variance, chains remember 1 − 1/R-hat², which
    falls exponentially with the length.
    """
    factor = max(1.0, needed / ess)
    if r_hat is None or r_hat <= R_HAT:
        return factor
    remembered = 1 - 1 / r_hat**2
    if remembered == 1:
        return math.inf
    return max(factor, math.log(1 - 1 / R_HAT**2) / math.log(remembered))
