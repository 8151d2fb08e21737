"""A run in a notebook: a figure, a table of its samples, and what is shown of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from maskov.diagnostics.verdict import measured
from maskov.errors import InputError
from maskov.runs.result import SHOWN_SAMPLES, Run
from maskov.ui.report.formats import templates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# The most chains drawn as separate lines; more would be unreadable.
_MOST_LINES = 16
_MOST_STATISTICS = 16
# R-hat beyond this is drawn at it: chains that never meet have an infinite one.
_MOST_R_HAT = 3.0


def draw_run(run: Run, what: str, axes: Axes | None) -> Axes:
    """Draw a trace of a run, or its R-hat, on axes that are given or new."""
    traced = [name for name, values in run.traces.items() if values.ndim == 2]
    known = ("energy", "r_hat", *traced)
    if what not in known:
        raise InputError(f"a run has no '{what}' to plot; use one of {', '.join(known)}.")
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("plot() needs matplotlib: pip install '.[notebook]'.") from None
    drawn: Axes = pyplot.subplots(layout="constrained")[1] if axes is None else axes
    if what == "r_hat":
        _draw_r_hats(drawn, run)
    else:
        _draw_trace(drawn, run, what)
    return drawn


def _draw_trace(axes: Axes, run: Run, what: str) -> None:
    """Draw a trace of each chain, thin, and its mean over chains."""
    manifest, traces = run.manifest, run.traces
    done = int((traces["steps"] > 0).all(1).sum())
    name = what.replace("_", " ")
    if what == "energy":
        has_target = np.isfinite(traces["energy_target"][:done]).any()
        what = "energy_target" if has_target else "energy_raw"
        name = f"energy {manifest.energy if has_target else 'raw'}"
    energy = traces[what][:done]
    traced = np.isfinite(energy).all(1)
    epochs = np.arange(1, done + 1)[traced]
    for chain in range(min(energy.shape[1], _MOST_LINES)):
        axes.plot(epochs, energy[traced, chain], color="tab:blue", alpha=0.25, linewidth=0.8)
    unit, time, before = "chains", "epoch", "burn-in"
    if manifest.particles:
        unit, time, before = "particles", "point of the path", "before the target"
    axes.plot(epochs, energy[traced].mean(1), color="black", label=f"mean of all {unit}")
    if burn_in := manifest.burn_in(done):
        axes.axvspan(0.5, burn_in + 0.5, color="0.9", label=before)
    axes.set(xlabel=time, ylabel=name, title=manifest.config.model.name)
    axes.legend()


def _draw_r_hats(axes: Axes, run: Run) -> None:
    """Draw R-hat of each energy and of the slowest token statistics."""
    diagnosis = run.diagnose()
    tokens = diagnosis.tokens.statistics[:_MOST_STATISTICS] if diagnosis.tokens else []
    numbers = measured(run.manifest, diagnosis.energies, tokens)
    names, figures, _ = zip(*numbers, strict=True)
    # Nothing is drawn for single chains.
    axes.barh(names, [min(one.r_hat or 1.0, _MOST_R_HAT) - 1 for one in figures], left=1.0)
    limits = [one.r_hat_limit or 1.0 for one in figures]
    axes.plot(limits, range(len(names)), "|", color="tab:red", markersize=12, label="limit")
    axes.invert_yaxis()
    axes.set(xlabel="nested R-hat", title=diagnosis.verdict.state)
    axes.legend()


def run_html(run: Run) -> str:
    """Return the verdict, the energies and a few samples."""
    diagnosis, samples = run.diagnose(), run.samples
    return (
        templates()
        .get_template("notebook.html")
        .render(
            found=diagnosis.verdict,
            energies=diagnosis.energies,
            samples=samples[:SHOWN_SAMPLES],
            more=len(samples) - SHOWN_SAMPLES,
            about=repr(run),
        )
    )


def run_frame(run: Run) -> DataFrame:
    """Return the samples as a DataFrame."""
    try:
        import pandas
    except ImportError:
        raise InputError("to_pandas() needs pandas: pip install '.[notebook]'.") from None
    rows = []
    for one in run.samples:
        row = {name: value for name, value in asdict(one).items() if value is not None}
        rows.append(row | {f"energy_{name}": it for name, it in row.pop("energies").items()})
    columns = ["chain", "epoch", "text", "energy_raw", "energy_norm"]
    return pandas.DataFrame(rows, columns=None if rows else columns)
