"""How fast positions forget their tokens.

The chance that a position holds the same token `lag` epochs later, s(lag), is set against the
chance m that two independent draws from its marginal agree, pooled over the chains of a group:

    ρ(lag) = (s(lag) − m) / (1 − m)

is 1 at lag 0, and 0 once the token is forgotten. Over several positions or groups, numerators and
denominators are summed, so that each counts as much as it varies. Frozen positions and padding
never vary and count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.chains import Group
from maskov.diagnostics.correlation import integrated_time, lags_of
from maskov.diagnostics.thresholds import FEWEST_DRAWS

# Lags of each position by itself: a run has many positions.
SHOWN_LAGS = 20

Values = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Memory:
    """What is still known of tokens by lag: Σ (s − m), lags × positions, and Σ (1 − m)."""

    excess: Values
    variation: Values
    count: int

    def __add__(self, other: Memory) -> Memory:
        """Return that of both."""
        return Memory(
            self.excess + other.excess, self.variation + other.variation, self.count + other.count
        )

    def overall(self) -> tuple[list[float], float, bool] | None:
        """Return the autocorrelation over all positions, its integral, whether it goes on."""
        if not self.variation.any():
            return None
        correlation = self.excess.sum(1) / self.variation.sum()
        time, on = integrated_time(correlation, self.count * int((self.variation > 0).sum()))
        return correlation.tolist(), float(time), bool(on)

    def by_position(self) -> list[tuple[list[float], float, bool] | None]:
        """Return the same of each position, at the first lags; nothing where it never varied."""
        varies = self.variation > 0
        correlation = self.excess / np.where(varies, self.variation, 1)
        times, goes_on = integrated_time(correlation, self.count)
        return [
            (correlation[:SHOWN_LAGS, place].tolist(), float(times[place]), bool(goes_on[place]))
            if there
            else None
            for place, there in enumerate(varies.tolist())
        ]


def memories(tokens: Tokens, groups: Sequence[Group]) -> dict[int, Memory]:
    """Return the memory of each template's positions, of tokens by epoch, chain and position."""
    found: dict[int, Memory] = {}
    if len(tokens) < FEWEST_DRAWS:
        return found
    for group in groups:
        one = memory(tokens[:, group.chains])
        found[group.template] = found[group.template] + one if group.template in found else one
    return found


def memory(tokens: Tokens) -> Memory:
    """Return the memory of one group of chains, each of which counts once."""
    draws, chains, _ = tokens.shape
    agree = _agreement(tokens.reshape(draws * chains, -1))
    same = [(tokens[: draws - lag] == tokens[lag:]).mean((0, 1)) for lag in range(lags_of(draws))]
    # A position that never varies agrees exactly; its count leaves no rounding behind.
    return Memory(chains * (np.stack(same) - agree), chains * (1 - agree), draws * chains)


def _agreement(tokens: Tokens) -> Values:
    """Return how often two draws from the marginal of each column agree: Σ p²."""
    rows, width = tokens.shape
    place = np.broadcast_to(np.arange(width), tokens.shape)
    keys, counts = np.unique(place * 2**32 + tokens, return_counts=True)
    # Whole numbers, so that a column of one token agrees exactly.
    squares = np.bincount(keys // 2**32, weights=counts.astype(np.float64) ** 2, minlength=width)
    share: Values = squares / float(rows) ** 2
    return share
