"""Convergence and autocorrelation of an energy over the chains of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.autocorrelation import autocorrelation, integrated_time
from maskov.diagnostics.chains import Group
from maskov.diagnostics.convergence import Convergence, convergence, is_constant
from maskov.diagnostics.thresholds import MIN_DRAWS

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupFigures:
    """An energy in one group of chains with the same target; a single chain has no R-hat."""

    template: int
    length: int | None
    chains: int
    constant: bool
    mean: float | None
    r_hat: float | None
    r_hat_limit: float | None
    ess_bulk: float | None
    ess_tail: float | None
    mcse: float | None


@dataclass(frozen=True)
class EnergyFigures:
    """An energy over a whole run.

    `draws` is the number of traced epochs after burn-in, `spacing` epochs apart. `r_hat` and its
    limit are those of the worst group of two chains or more; effective sizes are summed over
    groups; the mean weighs all chains equally and `mcse` is its Monte Carlo error.
    `autocorrelation` is by lag in draws; `time` is the integrated autocorrelation time in epochs, a
    lower bound if `at_least`.
    """

    draws: int
    spacing: int | None
    mean: float | None
    mcse: float | None
    r_hat: float | None
    r_hat_limit: float | None
    ess_bulk: float | None
    ess_tail: float | None
    constant_groups: int
    autocorrelation: list[float] | None
    time: float | None
    at_least: bool
    groups: list[GroupFigures]


def energy_figures(trace: Values, groups: Sequence[Group]) -> EnergyFigures:
    """Diagnose one energy, given as epochs × chains after burn-in."""
    rows, spacing = _evenly_traced(trace)
    values = trace[rows]
    parts = [values[:, group.chains] for group in groups]
    figures = [
        _group_figures(part, group, len(groups)) for part, group in zip(parts, groups, strict=True)
    ]
    correlation, time, at_least = _correlation(parts)
    bulk, tail = ([getattr(one, name) for one in figures] for name in ("ess_bulk", "ess_tail"))
    r_hat, limit = worst_r_hat([(one.r_hat, one.r_hat_limit) for one in figures if one.chains > 1])
    return EnergyFigures(
        draws=len(values),
        spacing=spacing,
        mean=float(values.mean()) if values.size else None,
        mcse=_error_of_mean(figures),
        r_hat=r_hat,
        r_hat_limit=limit,
        ess_bulk=_combine(sum, bulk),
        ess_tail=_combine(sum, tail),
        constant_groups=sum(group.constant for group in figures),
        autocorrelation=correlation,
        time=None if time is None or spacing is None else time * spacing,
        at_least=at_least,
        groups=figures,
    )


def worst_r_hat(
    numbers: Sequence[tuple[float | None, float | None]],
) -> tuple[float | None, float | None]:
    """Return the R-hat that is farthest above its limit, with it; None if any is missing."""
    known = [(one, limit) for one, limit in numbers if one is not None and limit is not None]
    if not known or len(known) < len(numbers):
        return None, None
    return max(known, key=lambda pair: pair[0] - pair[1])


def _evenly_traced(trace: Values) -> tuple[npt.NDArray[np.int64], int | None]:
    """Return the last evenly spaced traced epochs, and their spacing."""
    rows = np.flatnonzero(np.isfinite(trace).all(1))
    if len(rows) < 2:
        return rows, None
    gaps = np.diff(rows)
    uneven = np.flatnonzero(gaps != gaps[-1])
    return rows[uneven[-1] + 1 :] if len(uneven) else rows, int(gaps[-1])


def _group_figures(values: Values, group: Group, groups: int) -> GroupFigures:
    constant = len(values) >= MIN_DRAWS and is_constant(values)
    numbers = convergence(values, groups) if values.size else Convergence()
    return GroupFigures(
        template=group.template,
        length=group.length,
        chains=len(group.chains),
        constant=constant,
        mean=float(values.mean()) if values.size else None,
        **asdict(numbers),
    )


def _correlation(parts: Sequence[Values]) -> tuple[list[float] | None, float | None, bool]:
    """Return the autocorrelation over all groups, its time, and whether that is a lower bound."""
    if len(parts[0]) < MIN_DRAWS or all(map(is_constant, parts)):
        return None, None, False
    correlation = autocorrelation(parts)
    if correlation is None:
        return None, None, False
    time, at_least = integrated_time(correlation, sum(part.size for part in parts))
    return correlation.tolist(), float(time), bool(at_least)


def _combine(function: Any, values: Sequence[float | None]) -> float | None:
    """Combine the groups' values; None if any is missing."""
    return None if None in values or not values else float(function(values))


def _error_of_mean(groups: Sequence[GroupFigures]) -> float | None:
    """Return the error of the mean over all chains; groups are independent of one another."""
    total = sum(group.chains for group in groups)
    weighted = [group.mcse and group.mcse * group.chains / total for group in groups]
    return _combine(np.linalg.norm, weighted)
