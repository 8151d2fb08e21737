"""Kinds of figures: lines over a varied number, grouped bars, and curves over epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.lib import style
from experiments.lib.quantities import QUANTITIES, SAMPLERS
from experiments.lib.result import Document
from experiments.lib.style import Axes, Figure

_DIRECTION = {
    "energy_raw": "lower is more probable",
    "energy_norm": "lower is more probable",
    "energy_norm_best": "lower is more probable",
    "perplexity": "lower is more fluent",
    "bleu": "higher is better",
    "bleu_best": "higher is better",
    "bleu_last": "higher is better",
}


def plot_sweep(
    document: Document, quantities: Sequence[str], label: str, even: bool = False
) -> Figure:
    """Plot quantities over a varied number, ours and the paper's.

    With `even`, the numbers are spaced evenly.
    """
    figure, panels = style.panels(len(quantities))
    for axes, quantity in zip(panels, quantities, strict=True):
        rows = [row for row in document["comparison"] if row["quantity"] == quantity]
        energy = quantity.startswith("energy")
        # The paper's energies are of other sets and scales: they get their own axis.
        paper_axes = (
            axes.twinx() if energy and any(row["paper"] is not None for row in rows) else axes
        )
        xs = sorted({row["x"] for row in rows})
        position = {x: index if even else x for index, x in enumerate(xs)}
        for series in dict.fromkeys(row["series"] for row in rows):
            points = [row | {"x": position[row["x"]]} for row in rows if row["series"] == series]
            _line(axes, paper_axes, sorted(points, key=lambda row: row["x"]), series)
        axes.set_xlabel(label)
        axes.set_title(_title(quantity))
        if paper_axes is not axes:
            paper_axes.grid(False)
            paper_axes.spines["right"].set_visible(True)
            paper_axes.set_ylabel("the paper's scale (dashed)", color="#777777", fontsize=11)
        if quantity.startswith("perplexity"):
            style.plain_log(axes)
        axes.set_xticks(list(position.values()), [f"{x:g}" for x in xs])
    style.caption(figure, document)
    style.legend(figure)
    return figure


def _line(axes: Axes, paper_axes: Axes, rows: list[dict[str, Any]], series: str) -> None:
    look = {"color": style.colour(series), "marker": style.MARKERS.get(series, "o")}
    ours = [row for row in rows if row["ours"] is not None]
    errors = [2 * (row["standard_error"] or 0.0) for row in ours]
    if ours:
        axes.errorbar(
            [row["x"] for row in ours],
            [row["ours"] for row in ours],
            yerr=[
                # On a logarithmic scale an error bar must not reach zero.
                [
                    min(error, 0.9 * abs(row["ours"]))
                    for row, error in zip(ours, errors, strict=True)
                ],
                errors,
            ],
            capsize=3,
            label=SAMPLERS.get(series, series),
            **look,
        )
    theirs = [row for row in rows if row["paper"] is not None]
    if theirs:
        paper_axes.plot(
            [row["x"] for row in theirs],
            [row["paper"] for row in theirs],
            linestyle=(0, (2, 2)),
            linewidth=1.4,
            markerfacecolor="white",
            alpha=0.75,
            label=f"the paper: {SAMPLERS.get(series, series)}",
            **look,
        )


def plot_bars(
    document: Document,
    quantities: Sequence[str],
    height: float = 5.2,
    stacked: bool = False,
    only_measured: bool = False,
) -> Figure:
    """Plot bars for each series, grouped by x; the paper's numbers are hollow diamonds.

    With `only_measured`, groups without a number of ours are left out.
    """
    measured = {row["quantity"] for row in document["comparison"] if row["ours"] is not None}
    shown = [quantity for quantity in quantities if quantity in measured] or quantities[:1]
    figure, panels = style.panels(len(shown), height, stacked=stacked)
    for axes, quantity in zip(panels, shown, strict=True):
        rows = [row for row in document["comparison"] if row["quantity"] == quantity]
        if only_measured:
            ours = {row["x"] for row in rows if row["ours"] is not None}
            rows = [row for row in rows if row["x"] in ours]
        groups = list(dict.fromkeys(row["x"] for row in rows))
        all_series = list(dict.fromkeys(row["series"] for row in document["comparison"]))
        present = [series for series in all_series if any(r["series"] == series for r in rows)]
        width = 0.8 / len(present)
        for row in rows:
            x = groups.index(row["x"]) + (present.index(row["series"]) + 0.5) * width - 0.4
            _bar(axes, row, x, width, all_series.index(row["series"]))
        axes.set_xticks(range(len(groups)), [_wrapped(str(group)) for group in groups])
        axes.grid(False, axis="x")
        axes.set_title(_title(quantity))
        values = [row["ours"] for row in rows if row["ours"] is not None]
        # The labels of the logarithmic scale are whole numbers, so shares would all read 0.
        if values and min(values) >= 1 and max(values) > 20 * min(values):
            style.plain_log(axes)
    style.caption(figure, document)
    style.legend(figure)
    return figure


def _bar(axes: Axes, row: dict[str, Any], x: float, width: float, index: int) -> None:
    series, tint = row["series"], style.colour(row["series"], index)
    if row["ours"] is not None:
        error = 2 * (row["standard_error"] or 0.0)
        axes.bar(
            x, row["ours"], width * 0.9, color=tint, label=SAMPLERS.get(series, series),
            yerr=error or None, capsize=3, error_kw={"elinewidth": 1.4, "ecolor": "#222222"},
        )  # fmt: skip
    if row["paper"] is not None and not row["quantity"].startswith("energy"):
        axes.plot(
            x, row["paper"], "D", color="#222222", markerfacecolor="white", markersize=8,
            label="the paper", linestyle="none",
        )  # fmt: skip


def plot_curve(axes: Axes, cell: dict[str, Any], quantity: str, series: str, **look: Any) -> None:
    """Plot a quantity of a cell over epochs, with a band of two standard errors."""
    by_epoch = cell["epochs"][quantity]
    epochs = by_epoch.get("epoch", list(range(len(by_epoch["value"]))))
    points = [
        (epoch + 1, value, error or 0.0)
        for epoch, value, error in zip(
            epochs, by_epoch["value"], by_epoch["standard_error"], strict=True
        )
        if value is not None
    ]
    if not points:
        return
    xs, ys, errors = (list(column) for column in zip(*points, strict=True))
    options = {"color": style.colour(series), "label": SAMPLERS.get(series, series)} | look
    axes.plot(xs, ys, marker="o", markersize=4, **options)
    low = [y - 2 * e for y, e in zip(ys, errors, strict=True)]
    high = [y + 2 * e for y, e in zip(ys, errors, strict=True)]
    axes.fill_between(xs, low, high, color=options["color"], alpha=0.18, linewidth=0)


def plot_epochs(document: Document, cells: dict[str, str], quantities: Sequence[str]) -> Figure:
    """Plot quantities over epochs, one curve for each cell (label -> sampler)."""
    figure, panels = style.panels(len(quantities))
    for axes, quantity in zip(panels, quantities, strict=True):
        for label, series in cells.items():
            cell = document["cells"].get(label)
            if cell is not None:
                plot_curve(axes, cell, quantity, series)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(_title(quantity))
    style.caption(figure, document)
    style.legend(figure)
    return figure


def _title(quantity: str) -> str:
    name = QUANTITIES[quantity][0]
    return f"{name} ({_DIRECTION[quantity]})" if quantity in _DIRECTION else name


def _wrapped(text: str) -> str:
    return text.replace(".", ".\n", 1) if len(text) > 12 else text
