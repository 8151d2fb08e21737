"""The curves of a report, from arrays of epochs × chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_FEWEST_BINS, _MOST_BINS = 8, 50


@dataclass(frozen=True)
class Spread:
    """A quantity by epoch: its centre over chains, and their 10 % and 90 % quantiles."""

    middle: list[float | None]
    low: list[float | None]
    high: list[float | None]


@dataclass(frozen=True)
class Histogram:
    """Shares of energies between edges; one list per run, with common edges."""

    edges: list[float]
    shares: list[list[float]]


def energy_spread(values: Values) -> Spread:
    """Return the median over chains and the central 80 %; None where not traced."""
    return _spread(values, _medians)


def rate_spread(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> Spread:
    """Return the rate over all chains, and the central 80 % of the chains' rates."""
    total = np.where(whole.sum(1) > 0, whole.sum(1), 1)
    means = np.where(whole.sum(1) > 0, part.sum(1) / total, np.nan)
    shares = np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)
    by_chain = _spread(shares, _means)
    return Spread(listed(means), by_chain.low, by_chain.high)


def chain_rate_error(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> float | None:
    """Return the standard error of a rate over chains, each chain weighted equally."""
    steps = whole.sum(0)
    if len(steps) < 2 or not steps.all():
        return None
    return float((part.sum(0) / steps).std(ddof=1) / np.sqrt(len(steps)))


def histogram(groups: Sequence[Values]) -> Histogram | None:
    """Count energies of several runs in common bins; None if there are none."""
    finite = [values[np.isfinite(values)] for values in groups]
    pooled = np.concatenate([values.ravel() for values in finite])
    if not pooled.size:
        return None
    low, high = float(pooled.min()), float(pooled.max())
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _bins(pooled, high - low) + 1)
    shares = []
    for values in finite:
        counts = np.histogram(values, edges)[0]
        shares.append((counts / max(values.size, 1)).tolist())
    return Histogram(edges.tolist(), shares)


def spaced(count: int, most: int) -> list[int]:
    """Return up to `most` evenly spaced indices below `count`, first and last included."""
    if count <= most:
        return list(range(count))
    if most == 1:
        return [0]
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def listed(values: Values) -> list[float | None]:
    """Return a list with None in place of NaN and infinities."""
    return [float(value) if np.isfinite(value) else None for value in values.tolist()]


def _bins(values: Values, width: float) -> int:
    """Choose the number of bins by the Freedman-Diaconis rule, within limits."""
    quarter, three = np.quantile(values, (0.25, 0.75))
    step = 2 * (three - quarter) / values.size ** (1 / 3)
    return int(np.clip(width / step, _FEWEST_BINS, _MOST_BINS)) if step > 0 else _FEWEST_BINS


def _spread(values: Values, middle: Callable[[Values], Values]) -> Spread:
    whole = np.isfinite(values).all(1)
    rows = values[whole]
    curves = np.full((3, len(values)), np.nan)
    if len(rows) and rows.shape[1]:
        curves[0, whole] = middle(rows)
        curves[1:, whole] = np.quantile(rows, (0.1, 0.9), axis=1)
    return Spread(*(listed(row) for row in curves))


def _medians(rows: Values) -> Values:
    return np.asarray(np.median(rows, axis=1))


def _means(rows: Values) -> Values:
    return np.asarray(rows.mean(1))
