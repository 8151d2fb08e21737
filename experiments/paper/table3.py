"""Table 3: nucleus proposals, irreversible steps, and a mixture that avoids them."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.cell import Cell
from experiments.lib.result import Entry, Result
from experiments.lib.settings import Setting
from experiments.paper import printed
from experiments.paper.shared import EPSILON, translations

BOUNDARIES = (1.0, 0.99, 0.95, 0.90, 0.80)
SAMPLERS = ("norm", "deg")
MIXED = "norm, ε"


def _cells(setting: Setting) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for value in (1.0, 0.80, 0.95, 0.90, 0.99):
        for name in SAMPLERS:
            cells[f"{name}, {value}"] = translations(setting, name, top_p=value)
        if value < 1:
            cells[f"{MIXED}, {value}"] = translations(setting, "norm", top_p=value, epsilon=EPSILON)
    return cells


def _entries(setting: Setting) -> list[Entry]:
    entries = [
        Entry(quantity, name, value, f"{name}, {value}", printed.TABLE3[name][quantity][value])
        for quantity in ("energy_norm", "novel", "bleu")
        for name in SAMPLERS
        for value in BOUNDARIES
    ]
    entries += [
        Entry(quantity, MIXED, value, f"{MIXED}, {value}")
        for quantity in ("energy_norm", "novel", "bleu")
        for value in BOUNDARIES
        if value < 1
    ]
    return entries + [
        Entry("irreversible", name, value, f"{name}, {value}")
        for name in ("norm", MIXED)
        for value in BOUNDARIES
        if (name, value) != (MIXED, 1.0)
    ]


RESULT = Result(
    name="table3",
    title="Nucleus proposals, translation",
    section="Table 3, section 6.2",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.plot_sweep(
        document, ("energy_norm", "novel", "irreversible", "bleu"), "nucleus boundary", even=True
    ),
    notes=(
        "A step is irreversible where the current token lies outside its nucleus: q(x|x') = 0, so "
        "every proposal there is rejected. Such steps satisfy detailed balance but can freeze a "
        "chain; the paper does not mention them.",
        f"With ε = {EPSILON} of the full conditional mixed in, every step is reversible.",
    ),
)
