"""The kinds of figures: a quantity over what was varied, bars side by side, curves over epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments import style
from experiments.quantities import QUANTITIES, SAMPLERS
from experiments.result import Document
from experiments.style import Axes, Figure

_DIRECTION = {
    "energy_raw": "lower is more probable",
    "energy_norm": "lower is more probable",
    "energy_norm_best": "lower is more probable",
    "perplexity": "lower is more fluent",
    "bleu": "higher is better",
    "bleu_best": "higher is better",
    "bleu_last": "higher is better",
}


def over(document: Document, quantities: Sequence[str], label: str, even: bool = False) -> Figure:
    """Draw quantities over a number that was varied, ours and the paper's.

    With `even` the numbers stand at even distances, whatever lies between them.
    """
    figure, axes = style.panels(len(quantities))
    for one, quantity in zip(axes, quantities, strict=True):
        rows = [row for row in document["comparison"] if row["quantity"] == quantity]
        energy = quantity.startswith("energy")
        # The paper's energies are of other sets and scales: an axis of their own.
        printed = one.twinx() if energy and any(row["paper"] is not None for row in rows) else one
        xs = sorted({row["x"] for row in rows})
        place = {x: index if even else x for index, x in enumerate(xs)}
        for series in dict.fromkeys(row["series"] for row in rows):
            own = [row | {"x": place[row["x"]]} for row in rows if row["series"] == series]
            _line(one, printed, sorted(own, key=lambda row: row["x"]), series)
        one.set_xlabel(label)
        one.set_title(_titled(quantity))
        if printed is not one:
            printed.grid(False)
            printed.spines["right"].set_visible(True)
            printed.set_ylabel("the paper's scale (dashed)", color="#777777", fontsize=11)
        if quantity.startswith("perplexity"):
            style.plain_log(one)
        one.set_xticks(list(place.values()), [f"{x:g}" for x in xs])
    style.caption(figure, document)
    style.legend(figure)
    return figure


def _line(one: Axes, printed: Axes, rows: list[dict[str, Any]], series: str) -> None:
    look = {"color": style.colour(series), "marker": style.MARKERS.get(series, "o")}
    ours = [row for row in rows if row["ours"] is not None]
    errors = [2 * (row["standard_error"] or 0.0) for row in ours]
    if ours:
        one.errorbar(
            [row["x"] for row in ours],
            [row["ours"] for row in ours],
            yerr=[
                # On a logarithmic scale a bar that reaches zero would have no end.
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
        printed.plot(
            [row["x"] for row in theirs],
            [row["paper"] for row in theirs],
            linestyle=(0, (2, 2)),
            linewidth=1.4,
            markerfacecolor="white",
            alpha=0.75,
            label=f"the paper: {SAMPLERS.get(series, series)}",
            **look,
        )


def bars(
    document: Document, quantities: Sequence[str], height: float = 5.2, stacked: bool = False
) -> Figure:
    """Draw bars for each series, in groups by what was varied; the paper's as hollow diamonds."""
    there = {row["quantity"] for row in document["comparison"] if row["ours"] is not None}
    wanted = [quantity for quantity in quantities if quantity in there] or quantities[:1]
    figure, axes = style.panels(len(wanted), height, stacked=stacked)
    for one, quantity in zip(axes, wanted, strict=True):
        rows = [row for row in document["comparison"] if row["quantity"] == quantity]
        groups = list(dict.fromkeys(row["x"] for row in rows))
        all_series = list(dict.fromkeys(row["series"] for row in document["comparison"]))
        present = [series for series in all_series if any(r["series"] == series for r in rows)]
        width = 0.8 / len(present)
        for row in rows:
            place = groups.index(row["x"]) + (present.index(row["series"]) + 0.5) * width - 0.4
            _bar(one, row, place, width, all_series.index(row["series"]))
        one.set_xticks(range(len(groups)), [_wrapped(str(group)) for group in groups])
        one.grid(False, axis="x")
        one.set_title(_titled(quantity))
        values = [row["ours"] for row in rows if row["ours"] is not None]
        # A logarithmic scale has whole numbers, on which shares would all read as 0.
        if values and min(values) >= 1 and max(values) > 20 * min(values):
            style.plain_log(one)
    style.caption(figure, document)
    style.legend(figure)
    return figure


def _bar(one: Axes, row: dict[str, Any], place: float, width: float, index: int) -> None:
    series, tint = row["series"], style.colour(row["series"], index)
    if row["ours"] is not None:
        error = 2 * (row["standard_error"] or 0.0)
        one.bar(
            place, row["ours"], width * 0.9, color=tint, label=SAMPLERS.get(series, series),
            yerr=error or None, capsize=3, error_kw={"elinewidth": 1.4, "ecolor": "#222222"},
        )  # fmt: skip
    if row["paper"] is not None and not row["quantity"].startswith("energy"):
        one.plot(
            place, row["paper"], "D", color="#222222", markerfacecolor="white", markersize=8,
            label="the paper", linestyle="none",
        )  # fmt: skip


def curve(one: Axes, cell: dict[str, Any], quantity: str, series: str, **look: Any) -> None:
    """Draw a quantity of a cell over epochs, with a band of two standard errors."""
    known = cell["epochs"][quantity]
    epochs = known.get("epoch", list(range(len(known["value"]))))
    points = [
        (epoch + 1, value, error or 0.0)
        for epoch, value, error in zip(epochs, known["value"], known["standard_error"], strict=True)
        if value is not None
    ]
    if not points:
        return
    xs, ys, errors = (list(column) for column in zip(*points, strict=True))
    chosen = {"color": style.colour(series), "label": SAMPLERS.get(series, series)} | look
    one.plot(xs, ys, marker="o", markersize=4, **chosen)
    low = [y - 2 * e for y, e in zip(ys, errors, strict=True)]
    high = [y + 2 * e for y, e in zip(ys, errors, strict=True)]
    one.fill_between(xs, low, high, color=chosen["color"], alpha=0.18, linewidth=0)


def epochs(document: Document, cells: dict[str, str], quantities: Sequence[str]) -> Figure:
    """Draw quantities over epochs, one curve for each cell: label -> sampler."""
    figure, axes = style.panels(len(quantities))
    for one, quantity in zip(axes, quantities, strict=True):
        for label, series in cells.items():
            cell = document["cells"].get(label)
            if cell is not None:
                curve(one, cell, quantity, series)
        one.set_xlabel("epoch")
        one.xaxis.get_major_locator().set_params(integer=True)
        one.set_title(_titled(quantity))
    style.caption(figure, document)
    style.legend(figure)
    return figure


def _titled(quantity: str) -> str:
    name = QUANTITIES[quantity][0]
    return f"{name} ({_DIRECTION[quantity]})" if quantity in _DIRECTION else name


def _wrapped(text: str) -> str:
    return text.replace(".", ".\n", 1) if len(text) > 12 else text
