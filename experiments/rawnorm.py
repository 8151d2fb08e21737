"""The appendix's figure of both energies along one run of MH with E_raw."""

from __future__ import annotations

from experiments import style
from experiments.figures import curve
from experiments.result import Document, Entry, Result
from experiments.studies import annealed, translations
from experiments.style import Figure

CELLS = {"raw": "at temperature 1", "raw, annealed": "annealed by 0.02"}


def _draw(document: Document) -> Figure:
    figure, axes = style.panels(2, width=6.4)
    for one, (label, told) in zip(axes, CELLS.items(), strict=True):
        cell = document["cells"].get(label)
        if cell is None:
            continue
        right = one.twinx()
        curve(one, cell, "energy_norm", "norm", label="E_norm (left)")
        curve(right, cell, "energy_raw", "raw", label="E_raw (right)")
        right.grid(False)
        right.spines["right"].set_visible(True)
        one.set_xlabel("epoch")
        one.xaxis.get_major_locator().set_params(integer=True)
        one.set_ylabel("E_norm", color=style.COLOURS["norm"])
        right.set_ylabel("E_raw", color=style.COLOURS["raw"])
        one.set_title(f"MH on E_raw, {told}")
    style.caption(figure, document)
    return figure


RESULT = Result(
    name="rawnorm",
    title="Both energies along a run",
    cells=lambda setting: {
        "raw": translations(setting, "raw"),
        "raw, annealed": annealed(setting, "raw", 0.02),
    },
    entries=lambda setting: [
        Entry("correlation", "raw", told, label) for label, told in CELLS.items()
    ],
    draw=_draw,
    notes=(
        "The correlation is between the two energies of the same epoch, after each chain's own "
        "mean "
        "is taken away: does one fall when the other does?",
        "The paper shows the two curves and no number.",
    ),
)
