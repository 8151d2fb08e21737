"""Table 4: blocks of positions, both tasks; mask-predict as block Gibbs at temperature 0."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.cell import Cell
from experiments.lib.deterministic import MaskPredictIsBlockGibbs
from experiments.lib.result import Document, Entry, Result
from experiments.lib.settings import Setting
from experiments.paper import printed
from experiments.paper.shared import FIRST_BLOCK, SHRINK_SHARE, blocks, text_blocks

SAMPLERS = ("deg", "raw", "norm")
_QUANTITIES = {
    "translation": ("energy_norm", "novel", "bleu"),
    "text": ("energy_raw", "novel", "perplexity"),
}


def _cells(setting: Setting) -> dict[str, Cell]:
    cells: dict[str, Cell] = {f"translation, {name}": blocks(setting, name) for name in SAMPLERS}
    cells |= {f"text, {name}": text_blocks(setting, name) for name in SAMPLERS}
    size = setting.translation
    cells["mask-predict"] = MaskPredictIsBlockGibbs(
        setting.study, min(size.sentences or 500, 500), size.longest
    )
    return cells


def _entries(setting: Setting) -> list[Entry]:
    entries = [
        Entry(quantity, name, task, f"{task}, {name}", printed.TABLE4[task][name][quantity])
        for task, quantities in _QUANTITIES.items()
        for quantity in quantities
        for name in SAMPLERS
    ]
    return [*entries, Entry("equal", "block Gibbs at T = 0", "translation", "mask-predict", 1.0)]


def _extra_markdown(document: Document) -> str:
    cell = document["cells"].get("mask-predict")
    if cell is None:
        return ""
    equal = cell["values"]["equal"]
    return (
        "Block Gibbs at temperature 0 with mask-predict's choice of positions gave the same "
        f"tokens as mask-predict in plain code for {equal['value'] * equal['n']:.0f} "
        f"of {equal['n']} sentences."
    )


RESULT = Result(
    name="table4",
    title="Blocks of positions",
    section="Table 4, section 6.3",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.plot_bars(document, ("novel", "bleu", "perplexity")),
    notes=(
        f"The paper gives no block sizes; our blocks shrink evenly from {FIRST_BLOCK} positions "
        f"(or the shortest sequence) to one after {SHRINK_SHARE:.0%} of the epochs.",
        "A block is one proposal, novel if any of its positions changed.",
    ),
    extra_markdown=_extra_markdown,
)
