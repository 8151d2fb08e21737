"""A test of an explanation, not in the paper: text by MH whose target is as cool as its proposal.

At low proposal temperatures degenerate Gibbs writes more fluent text than MH on E_raw. We say: MH
samples the same target, of temperature 1, whatever its proposal, and Gibbs follows the proposal. If
so, MH with the proposal's temperature in its target is the more fluent one again.
"""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.cell import Cell
from experiments.lib.result import Entry, Result
from experiments.lib.settings import Setting
from experiments.paper.shared import text

TEMPERATURES = (0.8, 0.5)
COOL_RAW = "raw, cool"
QUANTITIES = ("perplexity", "energy_raw", "novel")


def _cells(setting: Setting) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for value in TEMPERATURES:
        for name in ("raw", "deg"):
            cells[f"{name}, {value}"] = text(setting, name, temperature=value)
        cells[f"{COOL_RAW}, {value}"] = text(setting, "raw", temperature=value, target=value)
    return cells


RESULT = Result(
    name="cool-text",
    title="Text from a target as cool as the proposal",
    section="none; a test of ours",
    cells=_cells,
    entries=lambda setting: [
        Entry(quantity, name, value, f"{name}, {value}")
        for quantity in QUANTITIES
        for name in ("deg", "raw", COOL_RAW)
        for value in TEMPERATURES
    ],
    draw=lambda document: figures.plot_sweep(document, QUANTITIES, "proposal temperature"),
    notes=("The chains with a target temperature of 1 are those of Table 2.",),
)
