"""Section 5: acceptance and novel rates of translations and of unconditional text."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.cell import Cell
from experiments.lib.result import Entry, Result
from experiments.lib.settings import Setting
from experiments.paper import printed
from experiments.paper.shared import text, translations

SAMPLERS = ("deg", "raw", "norm")


def _cells(setting: Setting) -> dict[str, Cell]:
    cells: dict[str, Cell] = {f"translation, {n}": translations(setting, n) for n in SAMPLERS}
    return cells | {f"text, {name}": text(setting, name) for name in SAMPLERS}


def _entries(setting: Setting) -> list[Entry]:
    return [
        Entry(quantity, name, task, f"{task}, {name}", printed.ACCEPTANCE[task][name].get(quantity))
        for quantity in ("acceptance", "novel", "proposed_novel")
        for name in SAMPLERS
        for task in ("translation", "text")
    ]


RESULT = Result(
    name="acceptance",
    title="How often chains move",
    section="section 5, text",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.plot_bars(document, ("acceptance", "novel"), only_measured=True),
    notes=(
        "Accepted and novel (accepted and different) are shares of all proposals. A proposal that "
        "equals the current token counts, and is always accepted.",
        "The paper prints the label 'raw' twice for the MH rates; we read the second as norm.",
    ),
)
