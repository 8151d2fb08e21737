"""From the appendix: both energies along one run of MH with E_raw."""

from __future__ import annotations

from experiments.lib import style
from experiments.lib.figures import plot_curve
from experiments.lib.result import Document, Entry, Result
from experiments.lib.style import Figure
from experiments.paper.shared import annealed, translations

CELLS = {"raw": "at temperature 1", "raw, annealed": "annealed by 0.02"}


def _draw(document: Document) -> Figure:
    figure, axes = style.panels(2, width=6.4)
    for left, (label, description) in zip(axes, CELLS.items(), strict=True):
        cell = document["cells"].get(label)
        if cell is None:
            continue
        right = left.twinx()
        plot_curve(left, cell, "energy_norm", "norm", label="E_norm (left)")
        plot_curve(right, cell, "energy_raw", "raw", label="E_raw (right)")
        right.grid(False)
        right.spines["right"].set_visible(True)
        left.set_xlabel("epoch")
        left.xaxis.get_major_locator().set_params(integer=True)
        left.set_ylabel("E_norm", color=style.COLOURS["norm"])
        right.set_ylabel("E_raw", color=style.COLOURS["raw"])
        left.set_title(f"MH on E_raw, {description}")
    style.caption(figure, document)
    return figure


RESULT = Result(
    name="rawnorm",
    title="Both energies along a run",
    section="the appendix on additional details about the graphs",
    cells=lambda setting: {
        "raw": translations(setting, "raw"),
        "raw, annealed": annealed(setting, "raw", 0.02),
    },
    entries=lambda setting: [
        Entry("correlation", "raw", description, label) for label, description in CELLS.items()
    ],
    draw=_draw,
    notes=(
        "The correlation is between the two energies of the same epoch, after subtracting each "
        "chain's mean.",
        "The paper shows the two curves and no number.",
    ),
    keep=("epochs",),
)
