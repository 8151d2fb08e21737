"""Averages over chains with their standard errors, from the traces of runs.

Rates are those of the paper's section 5: accepted, and accepted and different (novel), over all
proposals; a block is one proposal.
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
# What a curve has of each epoch.
PARTS = ("value", "standard_error")


def estimate(replicates: Sequence[float] | Array) -> Estimate:
    """Return the mean of the replicates and its standard error; one replicate has none."""
    values = np.asarray(replicates, dtype=np.float64)
    error = None if len(values) < 2 else float(values.std(ddof=1) / np.sqrt(len(values)))
    return {"value": float(values.mean()), "standard_error": error, "n": len(values)}


def by_replicate(traces: Traces, each: int) -> Traces:
    """Return traces as epochs × replicates, adding up counts and averaging energies.

    Chains of one source stand beside each other, `each` of them: the c-th of every source together
    are one replicate of the corpus. Without sources every chain is a replicate (`each` = chains).
    """
    found = {}
    for name in (*ENERGIES, "steps", *RATES.values()):
        values = traces[name].reshape(len(traces[name]), -1, each)
        found[name] = values.mean(1) if name in ENERGIES else values.sum(1)
    return found


def averages(traces: Traces, burn_in: int) -> dict[str, Estimate]:
    """Average replicates over the epochs after burn-in."""
    kept = {name: values[burn_in:] for name, values in traces.items()}
    steps = kept["steps"].sum(0)
    found = {name: estimate(kept[count].sum(0) / steps) for name, count in RATES.items()}
    for name in ENERGIES:
        traced = kept[name][~np.isnan(kept[name]).any(1)]
        if len(traced):
            found[name] = estimate(traced.mean(0))
    return found


def correlation(traces: Traces, each: int, burn_in: int) -> Estimate | None:
    """Return how E_raw and E_norm go together along chains, each around its own mean.

    There is one correlation for each replicate. Chains whose energies were not traced or never
    move have none.
    """
    raw, norm = (traces[name][burn_in:] for name in ENERGIES)
    if len(raw) < 2 or np.isnan(raw).any():
        return None
    raw, norm = ((values - values.mean(0)).reshape(len(values), -1, each) for values in (raw, norm))
    both, alone = (raw * norm).sum((0, 1)), (raw**2).sum((0, 1)) * (norm**2).sum((0, 1))
    return estimate(both / np.sqrt(alone)) if (alone > 0).all() else None


def curves(traces: Traces) -> dict[str, dict[str, list[float | None]]]:
    """Return each quantity over all epochs: its mean over replicates and its standard error."""
    steps = traces["steps"]
    found = {name: _curve(traces[count] / steps) for name, count in RATES.items()}
    return found | {name: _curve(traces[name]) for name in ENERGIES}


def _curve(values: Array) -> dict[str, list[float | None]]:
    """Describe epochs × replicates; what was not traced is null."""
    rows = [None if np.isnan(row).any() else estimate(row) for row in values]
    return {part: [None if row is None else row[part] for row in rows] for part in PARTS}
