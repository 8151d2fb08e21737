"""How well the chains of a run agree on an energy, and how fast they forget it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.chains import Group
from maskov.diagnostics.convergence import Convergence, convergence, is_constant
from maskov.diagnostics.correlation import autocorrelation, integrated_time
from maskov.diagnostics.thresholds import FEWEST_DRAWS

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupFigures:
    """An energy in one group of chains with the same target.

    `compares` is "chains", or "halves" where a single chain has only itself to agree with.
    """

    template: int
    length: int | None
    chains: int
    compares: str
    constant: bool
    mean: float | None
    r_hat: float | None
    ess_bulk: float | None
    ess_tail: float | None
    mcse: float | None


@dataclass(frozen=True)
class EnergyFigures:
    """An energy over a whole run.

    `draws` are the traced epochs of a chain after burn-in, `spacing` epochs apart. R-hat is that
    of the worst group, with the median beside it; effective sizes add up over groups; the mean
    counts each chain once and `mcse` is its Monte Carlo error. `autocorrelation` is by lag, counted
    in draws, and `time` its integral in epochs, or at least that much where `at_least`.
    """

    draws: int
    spacing: int | None
    mean: float | None
    mcse: float | None
    r_hat: float | None
    r_hat_median: float | None
    ess_bulk: float | None
    ess_bulk_median: float | None
    ess_tail: float | None
    ess_tail_median: float | None
    constant_groups: int
    autocorrelation: list[float] | None
    time: float | None
    at_least: bool
    groups: list[GroupFigures]


def energy_figures(trace: Values, groups: Sequence[Group]) -> EnergyFigures:
    """Diagnose one energy, given by epochs × chains after burn-in."""
    rows, spacing = _evenly_traced(trace)
    values = trace[rows]
    parts = [values[:, group.chains] for group in groups]
    found = [_group_figures(part, group) for part, group in zip(parts, groups, strict=True)]
    correlation, time, at_least = _forgetting(parts)
    r_hats, bulk, tail = ([getattr(one, name) for one in found] for name in _JUDGED)
    return EnergyFigures(
        draws=len(values),
        spacing=spacing,
        mean=float(values.mean()) if values.size else None,
        mcse=_error_of_mean(found),
        r_hat=_of_all(max, r_hats),
        r_hat_median=_of_all(median, r_hats),
        ess_bulk=_of_all(sum, bulk),
        ess_bulk_median=_of_all(median, bulk),
        ess_tail=_of_all(sum, tail),
        ess_tail_median=_of_all(median, tail),
        constant_groups=sum(one.constant for one in found),
        autocorrelation=correlation,
        time=None if time is None or spacing is None else time * spacing,
        at_least=at_least,
        groups=found,
    )


_JUDGED = ("r_hat", "ess_bulk", "ess_tail")


def _evenly_traced(trace: Values) -> tuple[npt.NDArray[np.int64], int | None]:
    """Return the last epochs that were traced at even distances, and that distance."""
    rows = np.flatnonzero(np.isfinite(trace).all(1))
    if len(rows) < 2:
        return rows, None
    gaps = np.diff(rows)
    uneven = np.flatnonzero(gaps != gaps[-1])
    return rows[uneven[-1] + 1 :] if len(uneven) else rows, int(gaps[-1])


def _group_figures(values: Values, group: Group) -> GroupFigures:
    constant = len(values) >= FEWEST_DRAWS and is_constant(values)
    found = convergence(values) if values.size else Convergence()
    return GroupFigures(
        template=group.template,
        length=group.length,
        chains=len(group.chains),
        compares="chains" if len(group.chains) > 1 else "halves",
        constant=constant,
        mean=float(values.mean()) if values.size else None,
        r_hat=found.r_hat,
        ess_bulk=found.ess_bulk,
        ess_tail=found.ess_tail,
        mcse=found.mcse,
    )


def _forgetting(parts: Sequence[Values]) -> tuple[list[float] | None, float | None, bool]:
    """Return the autocorrelation over all groups, its integral, and whether that goes on."""
    if len(parts[0]) < FEWEST_DRAWS or all(map(is_constant, parts)):
        return None, None, False
    correlation = autocorrelation(parts)
    if correlation is None:
        return None, None, False
    time, on = integrated_time(correlation, sum(part.size for part in parts))
    return correlation.tolist(), float(time), bool(on)


def _of_all(join: Any, values: Sequence[float | None]) -> float | None:
    """Join the groups' values; one that is missing is not passed over."""
    known = [value for value in values if value is not None]
    return float(join(known)) if known and len(known) == len(values) else None


def _error_of_mean(groups: Sequence[GroupFigures]) -> float | None:
    """Return the error of the mean over chains: groups are independent of one another."""
    total = sum(group.chains for group in groups)
    squares = [
        None if group.mcse is None else (group.mcse * group.chains / total) ** 2 for group in groups
    ]
    whole = _of_all(sum, squares)
    return None if whole is None else float(np.sqrt(whole))
