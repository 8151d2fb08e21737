"""A figure of a run: energies against epochs, and R-hat of energies and tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskov.diagnostics.verdict import measured
from maskov.errors import InputError
from maskov.runs.result import Run

# The most chains drawn as separate lines; more would be unreadable.
_MOST_LINES = 16
_MOST_STATISTICS = 16
# R-hat beyond this is drawn at it: chains that never meet have an infinite one.
_MOST_R_HAT = 3.0


def run_figure(run: Run) -> Any:
    """Return the figure."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("plot() needs matplotlib: pip install '.[notebook]'.") from None
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    # Whoever is given the figure shows it; pyplot would show it again.
    pyplot.close(figure)
    _draw_energies(left, run)
    _draw_r_hats(right, run)
    return figure


def _draw_energies(axes: Any, run: Run) -> None:
    """Draw the energy of the target in each chain, thin, and its mean over chains."""
    manifest, traces = run.manifest, run.traces
    done = int((traces["steps"] > 0).all(1).sum())
    energy, name = traces["energy_target"][:done], manifest.energy
    if not np.isfinite(energy).any():
        energy, name = traces["energy_raw"][:done], "raw"
    traced = np.isfinite(energy).all(1)
    epochs = np.arange(1, done + 1)[traced]
    for chain in range(min(energy.shape[1], _MOST_LINES)):
        axes.plot(epochs, energy[traced, chain], color="tab:blue", alpha=0.25, linewidth=0.8)
    axes.plot(epochs, energy[traced].mean(1), color="black", label="mean of all chains")
    burn_in = manifest.burn_in(done)
    if burn_in:
        axes.axvspan(0.5, burn_in + 0.5, color="0.9", label="burn-in")
    axes.set(xlabel="epoch", ylabel=f"energy {name}", title=manifest.config.model.name)
    axes.legend()


def _draw_r_hats(axes: Any, run: Run) -> None:
    """Draw R-hat of each energy and of the slowest token statistics."""
    diagnosis = run.diagnose()
    tokens = diagnosis.tokens.statistics[:_MOST_STATISTICS] if diagnosis.tokens else []
    numbers = measured(run.manifest, diagnosis.energies, tokens)
    names = [one.name for one in numbers]
    # Nothing is drawn for single chains.
    values = [min(one.r_hat or 1.0, _MOST_R_HAT) for one in numbers]
    axes.barh(names, [value - 1 for value in values], left=1.0)
    limits = [one.limit or 1.0 for one in numbers]
    axes.plot(limits, names, "|", color="tab:red", markersize=12, label="limit")
    axes.invert_yaxis()
    axes.set(xlabel="nested R-hat", title=diagnosis.verdict.state)
    axes.legend()
