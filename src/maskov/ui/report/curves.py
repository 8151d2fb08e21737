"""The curves of a report, from arrays of epochs × chains and from a diagnosis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics import Diagnosis

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


@dataclass(frozen=True)
class Correlation:
    """An autocorrelation by lag, lags counted in epochs."""

    name: str
    lags: list[int]
    values: list[float]


@dataclass(frozen=True)
class PositionCurve:
    """Acceptance and novelty by position, counted from 1, over all templates."""

    positions: list[int]
    accepted: list[float]
    novel: list[float]
    visits: list[int]
    templates: int


def energy_spread(values: Values) -> Spread:
    """Return the median over chains and the central 80 %; None where not traced."""
    curves = np.full((3, len(values)), np.nan)
    whole = np.isfinite(values).all(1)
    if whole.any():
        curves[:, whole] = np.quantile(values[whole], (0.5, 0.1, 0.9), axis=1)
    return Spread(*map(listed, curves))


def rate_spread(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> Spread:
    """Return the rate over all chains, and the central 80 % of the chains' rates."""
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chain = energy_spread(part / whole)
        return Spread(listed(part.sum(1) / whole.sum(1)), by_chain.low, by_chain.high)


def chain_rate_error(
    part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64], particles: int = 0
) -> float | None:
    """Return the standard error of a rate over chains, or populations, all weighted equally."""
    done, steps = (values.sum(0).reshape(-1, particles or 1).sum(1) for values in (part, whole))
    if len(steps) < 2 or not steps.all():
        return None
    return float((done / steps).std(ddof=1) / np.sqrt(len(steps)))


def histogram(groups: Sequence[Values]) -> Histogram | None:
    """Count energies of several runs in common bins; None if there are none."""
    finite = [values[np.isfinite(values)] for values in groups]
    pooled = np.concatenate([values.ravel() for values in finite])
    if not pooled.size:
        return None
    low, high = float(pooled.min()), float(pooled.max())
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        low, high = low - 0.5, high + 0.5
    # The Freedman-Diaconis rule, within limits.
    quarter, three = np.quantile(pooled, (0.25, 0.75))
    step = 2 * (three - quarter) / pooled.size ** (1 / 3)
    bins = int(np.clip((high - low) / step, _FEWEST_BINS, _MOST_BINS)) if step else _FEWEST_BINS
    edges = np.linspace(low, high, bins + 1)
    counts = [np.histogram(values, edges)[0] / max(values.size, 1) for values in finite]
    return Histogram(edges.tolist(), [shares.tolist() for shares in counts])


def correlations(diagnosis: Diagnosis) -> list[Correlation]:
    """Return the autocorrelations of energies and tokens that are known."""
    curves: dict[str, tuple[list[float] | None, int]] = {
        name: (one.autocorrelation, one.spacing or 1) for name, one in diagnosis.energies.items()
    }
    if diagnosis.tokens is not None:
        curves["tokens"] = diagnosis.tokens.autocorrelation, 1
    return [
        Correlation(name, [lag * spacing for lag in range(len(values))], values)
        for name, (values, spacing) in curves.items()
        if values
    ]


def position_curve(diagnosis: Diagnosis) -> PositionCurve | None:
    """Pool the rates of templates by position, weighted by visits."""
    figures = diagnosis.tokens.positions if diagnosis.tokens is not None else []
    sums: dict[int, Any] = defaultdict(lambda: np.zeros(3))
    for one in figures:
        rows = zip(
            one.positions, one.visits or (), one.acceptance or (), one.novel or (), strict=False
        )
        for position, visits, accepted, novel in rows:
            sums[position] += visits * np.array([1, accepted, novel])
    if not sums:
        return None
    visits, accepted, novel = np.array([sums[position] for position in sorted(sums)]).T
    return PositionCurve(
        [position + 1 for position in sorted(sums)],
        (accepted / visits).tolist(),
        (novel / visits).tolist(),
        visits.astype(int).tolist(),
        len(figures),
    )


def spaced(count: int, most: int) -> list[int]:
    """Return up to `most` evenly spaced indices below `count`, first and last included."""
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / max(most - 1, 1)) for place in range(most)]


def listed(values: Values) -> list[float | None]:
    """Return a list with None in place of NaN and infinities."""
    return [float(value) if np.isfinite(value) else None for value in values.tolist()]
