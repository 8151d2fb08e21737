"""How figures look: one style, colours that everybody tells apart, the same meaning everywhere.

Colours are Okabe and Ito's. A sampler keeps its colour and its marker in every figure; what the paper
printed is hollow and dashed, ours filled and solid.
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
    raise InputError("figures need matplotlib: pip install 'maskov[reproduce]'.") from error

COLOURS = {
    "deg": "#5C5C5C",
    "raw": "#D55E00",
    "norm": "#0072B2",
    "norm, ε": "#56B4E9",
    "autoregressive": "#009E73",
}
MARKERS = {"deg": "s", "raw": "o", "norm": "^", "norm, ε": "v", "autoregressive": "D"}
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
    "savefig.dpi": 160,
    "svg.hashsalt": "maskov",
    "svg.fonttype": "none",
}


def panels(count: int, height: float = 4.6, width: float = 5.2) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels side by side."""
    size = (max(width * count, 7.0), height)
    figure, axes = plt.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
    return figure, list(axes[0])


def colour(series: str, index: int = 0) -> str:
    """Return the colour of a sampler, or one of the others by its number."""
    return COLOURS.get(series, OTHERS[index % len(OTHERS)])


def caption(figure: Figure, document: dict[str, Any]) -> None:
    """Write title and circumstances above and below a figure."""
    figure.suptitle(document["title"], fontsize=16, fontweight="bold", x=0.01, ha="left")
    told = [f"setting {document['setting']}"]
    names = {
        one["name"]
        for cell in document["cells"].values()
        for one in cell.get("models", {}).values()
    }
    told += [", ".join(sorted(names))] if names else []
    told += [", ".join(document["devices"])] if document["devices"] else []
    figure.supxlabel(" · ".join(told), fontsize=10, color="#777777", x=0.01, ha="left")


def legend(figure: Figure, axes: list[Axes]) -> None:
    """Put one legend for all panels beneath them."""
    known: dict[str, Any] = {}
    for one in axes:
        handles, labels = one.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    if known:
        figure.legend(
            known.values(), known.keys(), loc="outside lower center", ncols=min(4, len(known)),
            fontsize=12,
        )  # fmt: skip


def save(figure: Figure, stem: Path) -> None:
    """Write SVG and PNG, without dates, so that the same data gives the same bytes."""
    figure.savefig(stem.with_name(stem.name + ".svg"), metadata={"Date": None})
    figure.savefig(stem.with_name(stem.name + ".png"))
    plt.close(figure)
