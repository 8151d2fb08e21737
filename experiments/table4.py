"""Table 4: blocks of positions, both tasks, and mask-predict as block Gibbs at temperature 0."""

from __future__ import annotations

from experiments import figures, paper
from experiments.result import Document, Entry, Result
from experiments.rules import MaskPredictIsBlockGibbs
from experiments.settings import Setting
from experiments.studies import BLOCK, FALLING, blocks, text_blocks
from experiments.work import Work

SAMPLERS = ("deg", "raw", "norm")
_QUANTITIES = {
    "translation": ("energy_norm", "novel", "bleu"),
    "text": ("energy_raw", "novel", "perplexity"),
}


def _cells(setting: Setting) -> dict[str, Work]:
    cells: dict[str, Work] = {f"translation, {name}": blocks(setting, name) for name in SAMPLERS}
    cells |= {f"text, {name}": text_blocks(setting, name) for name in SAMPLERS}
    size = setting.translation
    cells["mask-predict"] = MaskPredictIsBlockGibbs(
        setting.study, min(size.sentences or 500, 500), size.longest
    )
    return cells


def _entries(setting: Setting) -> list[Entry]:
    entries = [
        Entry(q, name, task, f"{task}, {name}", paper.TABLE4[task][name][q])
        for task, quantities in _QUANTITIES.items()
        for q in quantities
        for name in SAMPLERS
    ]
    return [*entries, Entry("equal", "block Gibbs at T = 0", "translation", "mask-predict", 1.0)]


def _more(document: Document) -> str:
    cell = document["cells"].get("mask-predict")
    if cell is None:
        return ""
    equal = cell["values"]["equal"]
    return (
        f"Block Gibbs at temperature 0, its positions chosen by mask-predict's rule, gave the same "
        f"tokens as mask-predict written out in plain code for {equal['value'] * equal['n']:.0f} "
        f"of "
        f"{equal['n']} sentences."
    )


RESULT = Result(
    name="table4",
    title="Blocks of positions",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.bars(document, ("novel", "bleu", "perplexity")),
    notes=(
        f"The paper gives no block sizes; ours begin at {BLOCK} positions (or the shortest "
        f"sequence) and fall evenly, to single ones after {FALLING:.0%} of the epochs.",
        "A block is one proposal, novel if any of its positions changed.",
    ),
    more=_more,
)
