"""The style of figures.

Colours are Okabe and Ito's, which colour-blind readers can tell apart. A sampler has the same
colour and marker in every figure. The paper's numbers are hollow and dashed, ours filled and
solid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskov.errors import InputError

try:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:  # pragma: no cover - the plain install
    raise InputError("figures need matplotlib: pip install '.[reproduce]'.") from error

COLOURS = {
    "deg": "#5C5C5C",
    "raw": "#D55E00",
    "norm": "#0072B2",
    "norm, ε": "#56B4E9",
    "norm, forced": "#56B4E9",
    "raw, forced": "#F2A97E",
    "norm, cool": "#CC79A7",
    "raw, cool": "#CC79A7",
    "autoregressive": "#009E73",
    # The rows of Table 5.
    "warm start": "#CC79A7",
    "degenerate Gibbs, T = 0.8": "#5C5C5C",
    "block Gibbs, T = 0.8": "#A6A6A6",
    "mask-predict, 10 iterations": "#E69F00",
    "mask-predict, 5 lengths": "#F0E442",
    "MH norm": "#0072B2",
    "MH raw": "#D55E00",
    "MH norm, 8 forced epochs": "#56B4E9",
    "MH raw, 8 forced epochs": "#F2A97E",
    "autoregressive model, greedy": "#7FCEB9",
    "autoregressive model": "#009E73",
}
MARKERS = {
    "deg": "s", "raw": "o", "norm": "^", "norm, ε": "v", "norm, forced": "v", "raw, forced": "P",
    "norm, cool": "X", "raw, cool": "X", "autoregressive": "D",
}  # fmt: skip
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#0072B2", "#D55E00", "#5C5C5C")
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "lines.linewidth": 2.4,
    "lines.markersize": 8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "maskov",
    "svg.fonttype": "none",
}


def panels(
    count: int, height: float = 5.0, width: float = 5.6, stacked: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels: in a row, two by two for four, or stacked."""
    rows, columns = (count, 1) if stacked else (2, 2) if count == 4 else (1, count)
    size = (max(width * columns, 11.0), height * (1 + 0.7 * (rows - 1)))
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    return figure, list(axes.flat)


def plain_log(axes: Axes) -> None:
    """Make the y axis logarithmic, with labels in plain notation."""
    axes.set_yscale("log")
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which(lambda value, _: f"{value:,.0f}" if str(f"{value:.0e}")[0] in "125" else "")


def colour(series: str, index: int = 0) -> str:
    """Return the colour of a sampler, or another colour by index."""
    return COLOURS.get(series, OTHERS[index % len(OTHERS)])


def caption(figure: Figure, document: dict[str, Any]) -> None:
    """Write the title, and below it the setting, models and devices."""
    figure.suptitle(document["title"] + "\n", fontsize=17, fontweight="bold", x=0.01, ha="left")
    parts = [f"setting {document['setting']}"]
    cells = document["cells"].values()
    names = {model["name"] for cell in cells for model in cell.get("models", {}).values()}
    parts += [", ".join(sorted(names))] if names else []
    parts += [", ".join(document["devices"])] if document["devices"] else []
    height = 1 - 0.52 / figure.get_figheight()
    figure.text(0.01, height, " · ".join(parts), fontsize=11, color="#777777", va="center")


def legend(figure: Figure) -> None:
    """Put one legend below all panels, with the paper's entries last."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        entries |= {
            label: entries.get(label, handle) for label, handle in zip(labels, handles, strict=True)
        }
    if entries:
        ours = [label for label in entries if not label.startswith("the paper")]
        order = [*ours, *(label for label in entries if label not in ours)]
        columns = len(order) if len(order) < 5 else (len(order) + 1) // 2
        # Width of the longest label and its handle, in inches.
        each = 0.09 * max(map(len, order)) + 0.7
        figure.legend(
            [entries[label] for label in order], order, loc="outside lower center",
            ncols=max(1, min(columns, int(figure.get_figwidth() / each))), fontsize=12,
        )  # fmt: skip


def save(figure: Figure, stem: Path) -> None:
    """Write an SVG."""
    write(figure, stem.with_name(stem.name + ".svg"))


def write(figure: Figure, path: Path) -> None:
    """Write a figure, as an SVG without a date, so the same data gives the same bytes."""
    with mpl.rc_context({name: STYLE[name] for name in ("svg.hashsalt", "svg.fonttype")}):
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
