"""Autocorrelation of energies and of tokens, and the integrated autocorrelation time.

As in the effective sample size, disagreement between chains counts as correlation: the variance
is that over all chains of a group, not only that within each.

For tokens, let s(lag) be the probability that a position holds the same token `lag` epochs later,
and m the probability that two independent draws from its marginal, pooled over a group's chains,
agree:

    ρ(lag) = (s(lag) − m) / (1 − m)

It is 1 at lag 0, and 0 once the tokens are independent. Over several positions or groups,
numerators and denominators are summed. Frozen positions and padding never vary and add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.chains import Group
from maskov.diagnostics.thresholds import MAX_LAGS, MIN_DRAWS

Values = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int32]

# Lags reported for each position: a run has many positions.
SHOWN_LAGS = 20


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


@dataclass(frozen=True)
class Memory:
    """Sums over chains: Σ (s − m), lags × positions, and Σ (1 − m); and the number of draws."""

    excess: Values
    variation: Values
    count: int

    def __add__(self, other: Memory) -> Memory:
        """Return the sums over the chains of both."""
        return Memory(
            self.excess + other.excess, self.variation + other.variation, self.count + other.count
        )

    def overall(self) -> tuple[list[float], float, bool] | None:
        """Return the autocorrelation over all positions, its time, whether that is a bound."""
        if not self.variation.any():
            return None
        correlation = self.excess.sum(1) / self.variation.sum()
        time, at_least = integrated_time(correlation, self.count * int((self.variation > 0).sum()))
        return correlation.tolist(), float(time), bool(at_least)

    def by_position(self) -> list[tuple[list[float], float, bool] | None]:
        """Return the same for each position, at the first lags; None where it never varied."""
        varies = self.variation > 0
        correlation = self.excess / np.where(varies, self.variation, 1)
        times, at_least = integrated_time(correlation, self.count)
        columns = zip(correlation[:SHOWN_LAGS].T, times, at_least, varies, strict=True)
        return [
            (lags.tolist(), float(time), bool(bound)) if varied else None
            for lags, time, bound, varied in columns
        ]


def memories(tokens: Tokens, groups: Sequence[Group]) -> dict[int, Memory]:
    """Return the memory of each template, given tokens as epochs × chains × positions."""
    by_template: dict[int, Memory] = {}
    for group in groups if len(tokens) >= MIN_DRAWS else ():
        new, old = memory(tokens[:, group.chains]), by_template.get(group.template)
        by_template[group.template] = new if old is None else old + new
    return by_template


def memory(tokens: Tokens) -> Memory:
    """Return the memory of one group of chains."""
    draws, chains, _ = tokens.shape
    agree = _agreement(tokens.reshape(draws * chains, -1))
    lags = range(number_of_lags(draws))
    same = [(tokens[: draws - lag] == tokens[lag:]).mean((0, 1)) for lag in lags]
    return Memory(chains * (np.stack(same) - agree), chains * (1 - agree), draws * chains)


def _agreement(tokens: Tokens) -> Values:
    """Return the probability that two draws from the marginal of each column agree: Σ p²."""
    rows, width = tokens.shape
    keys, counts = np.unique(np.arange(width) * 2**32 + tokens, return_counts=True)
    # Sums of integers, so that a column of one token gives exactly 1.
    squares = np.bincount(keys // 2**32, weights=counts.astype(np.float64) ** 2, minlength=width)
    share: Values = squares / float(rows) ** 2
    return share
