"""Averages over chains with standard errors, from the traces of runs.

Rates are those of section 5 of the paper: accepted proposals, and accepted proposals that change
the sequence (novel), over all proposals. A block is one proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.types import Traces

Array = npt.NDArray[Any]
Estimate = dict[str, float | int | None]

RATES = {
    "acceptance": "accepted",
    "novel": "novel",
    "proposed_novel": "proposed_novel",
    "irreversible": "irreversible",
}
ENERGIES = ("energy_raw", "energy_norm")
# What a curve contains for each epoch.
PARTS = ("value", "standard_error")


def estimate(replicates: Sequence[float] | Array) -> Estimate:
    """Return the mean of the replicates and its standard error (None for one replicate)."""
    values = np.asarray(replicates, dtype=np.float64)
    error = None if len(values) < 2 else float(values.std(ddof=1) / np.sqrt(len(values)))
    return {"value": float(values.mean()), "standard_error": error, "n": len(values)}


def by_replicate(traces: Traces, each: int) -> Traces:
    """Return traces as epochs × replicates, summing counts and averaging energies.

    The `each` chains of a source are adjacent; the c-th chains of all sources form one replicate
    of the corpus. Without sources every chain is a replicate (`each` = number of chains).
    """
    merged = {}
    for name in (*ENERGIES, "steps", *RATES.values()):
        values = traces[name].reshape(len(traces[name]), -1, each)
        merged[name] = values.mean(1) if name in ENERGIES else values.sum(1)
    return merged


def averages(traces: Traces, burn_in: int) -> dict[str, Estimate]:
    """Average each replicate over the epochs after burn-in."""
    kept = {name: values[burn_in:] for name, values in traces.items()}
    steps = kept["steps"].sum(0)
    means = {name: estimate(kept[count].sum(0) / steps) for name, count in RATES.items()}
    for name in ENERGIES:
        traced = kept[name][~np.isnan(kept[name]).any(1)]
        if len(traced):
            means[name] = estimate(traced.mean(0))
    return means


def correlation(traces: Traces, each: int, burn_in: int) -> Estimate | None:
    """Return the correlation of E_raw and E_norm along chains, each centred on its own mean.

    Each replicate has one correlation. The result is None if energies were not traced or a
    replicate never moves.
    """
    raw, norm = (traces[name][burn_in:] for name in ENERGIES)
    if len(raw) < 2 or np.isnan(raw).any():
        return None
    raw, norm = ((values - values.mean(0)).reshape(len(values), -1, each) for values in (raw, norm))
    covariance, variances = (raw * norm).sum((0, 1)), (raw**2).sum((0, 1)) * (norm**2).sum((0, 1))
    return estimate(covariance / np.sqrt(variances)) if (variances > 0).all() else None


def curves(traces: Traces) -> dict[str, dict[str, list[float | None]]]:
    """Return each quantity by epoch: its mean over replicates and the standard error."""
    steps = traces["steps"]
    rates = {name: _curve(traces[count] / steps) for name, count in RATES.items()}
    return rates | {name: _curve(traces[name]) for name in ENERGIES}


def _curve(values: Array) -> dict[str, list[float | None]]:
    """Summarize epochs × replicates; epochs that were not traced are None."""
    rows = [None if np.isnan(row).any() else estimate(row) for row in values]
    return {part: [None if row is None else row[part] for row in rows] for part in PARTS}
