"""The figure of humanisation: precision by number of mutations, with published systems."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.lib import style

COLOURS = {
    "one-pass": ("Sapiens, unmasked", "#E69F00"),
    "masked": ("Sapiens, masked", "#56B4E9"),
    "antiberty": ("AntiBERTy, masked", "#5C5C5C"),
    "samples": ("samples of Sapiens", "#009E73"),
    "product": ("their product, weights chosen", "#D55E00"),
}
FROM, TO = 100, 1200


def draw(results: Path) -> None:
    """Write `humanise.svg` next to the numbers."""
    found = json.loads((results / "humanise.json").read_text())
    with style.plt.rc_context(style.STYLE):
        figure, axes = style.panels(2, height=6.0, width=7.6)
        for panel, (part, title) in zip(
            axes, (("all", "all pairs"), ("rest", "pairs that nothing was chosen on")), strict=True
        ):
            _curves(panel, found, part)
            panel.set(title=title, xlabel="mutations in all chains")
        axes[0].set_ylabel("precision: share that the laboratory made, too")
        style.legend(figure)
        style.save(figure, results / "humanise")


def _curves(axes: Axes, found: dict, part: str) -> None:
    scale = 0.5 if part == "rest" else 1.0
    for name, (label, colour) in COLOURS.items():
        if name not in found["curves"]:
            continue
        right = np.array(found["curves"][name][part])
        counts = np.arange(1, len(right) + 1)
        shown = slice(int(FROM * scale), int(TO * scale))
        width = 3 if name == "product" else 1.8
        axes.plot(counts[shown], (right / counts)[shown], color=colour, lw=width, label=label)
    for row in found["points"]:
        if row["part"] == part and "graft" not in row["system"]:
            place = (row["mutations"], row["precision"])
            axes.plot(*place, "o", ms=9, mfc="white", mec="black")
            # Sapiens' fourth and fifth passes hardly change what the third left.
            if row["system"] not in ("sapiens4", "sapiens5"):
                axes.annotate(
                    row["system"], place, xytext=(-8, -20), textcoords="offset points",
                    ha="right", fontsize=12,
                )  # fmt: skip
    axes.set_ylim(bottom=0.55)
