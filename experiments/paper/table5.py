"""Table 5: annealed translations against deterministic methods and an autoregressive model."""

from __future__ import annotations

from typing import Any

from experiments.lib import figures
from experiments.lib.cell import Cell
from experiments.lib.context import pair_of
from experiments.lib.deterministic import DeterministicTranslations
from experiments.lib.result import Entry, Result
from experiments.lib.settings import Setting
from experiments.paper import printed
from experiments.paper.shared import (
    ANNEAL_RATE,
    FORCED_EPOCHS,
    LONG_FORCED_EPOCHS,
    PROPOSAL_TEMPERATURE,
    annealed,
    initial_epochs,
    translations,
)

# The test sets of the paper's numbers.
_PAPERS = {"newstest2014.deen", "newstest2016.roen"}
# Our own rows, which are not in the paper.
_LONG = {f"MH {name}, {LONG_FORCED_EPOCHS} forced epochs": name for name in ("norm", "raw")}
_BLOCKS = f"block Gibbs, T = {PROPOSAL_TEMPERATURE}"
_LENGTHS = "mask-predict, 5 lengths"
_GREEDY = "autoregressive model, greedy"
_ROWS = (
    "warm start",
    "degenerate Gibbs, T = 0.8",
    _BLOCKS,
    "mask-predict, 10 iterations",
    _LENGTHS,
    "MH norm",
    "MH raw",
    *_LONG,
    _GREEDY,
    "autoregressive model",
)
# The blocks of `maskov translate --method block-gibbs`.
_BLOCK, _BLOCK_FALL = 4, 0.2


def _deterministic(row: str, data: str, sentences: int | None) -> Cell | None:
    """Return the cell of a row without chains; None for the other rows."""
    if row == "warm start":
        return DeterministicTranslations("greedy", data, sentences)
    if row.startswith("mask-predict"):
        lengths = 5 if row == _LENGTHS else None
        return DeterministicTranslations(
            "mask-predict", data, sentences, iterations=10, length_beam=lengths
        )
    if row.startswith("autoregressive"):
        return DeterministicTranslations("ar", data, sentences, beam=1 if row == _GREEDY else 5)
    return None


def _chains(setting: Setting, row: str, data: str) -> Cell:
    """Return the cell of a row of chains; only their last translations are scored."""
    size = setting.translation
    last: dict[str, Any] = {
        "data": data,
        "chains": size.test_chains,
        "sentences": size.tests,
        "longest": None,
        "trace": "kept",
    }
    if not row.startswith("MH"):
        if row == _BLOCKS:
            last |= {"block": _BLOCK, "shrink": _BLOCK_FALL}
        return translations(
            setting, "deg", temperature=PROPOSAL_TEMPERATURE, burn_in=0, every=size.epochs, **last
        )
    sampler = _LONG.get(row, row.removeprefix("MH "))
    forced = LONG_FORCED_EPOCHS if row in _LONG else FORCED_EPOCHS
    kept = size.epochs - initial_epochs(setting, forced)
    last["nearest"] = size.test_nearest
    return annealed(setting, sampler, ANNEAL_RATE, forced, every=kept, **last)


def _cells(setting: Setting) -> dict[str, Cell]:
    """Return all cells, the most important first: the paper's rows on all sets, then ours."""
    cells: dict[str, Cell] = {}
    for row in sorted(_ROWS, key=lambda row: row not in printed.TABLE5):
        for data in setting.sets:
            cell = _deterministic(row, data, setting.translation.tests)
            cells[f"{row}, {data}"] = cell or _chains(setting, row, data)
    return cells


def _entries(setting: Setting) -> list[Entry]:
    entries = []
    for row in _ROWS:
        for data in setting.sets:
            numbers = printed.TABLE5.get(row) if data in _PAPERS else None
            paper = None if numbers is None else numbers[pair_of(data)]
            entries.append(Entry("bleu_last", row, data, f"{row}, {data}", paper))
    entries += [
        Entry("bleu_mbr", row, data, f"{row}, {data}")
        for row in _ROWS
        if row.startswith("MH")
        for data in setting.sets
    ]
    return entries + [
        Entry("energy_norm", row, data, f"{row}, {data}") for row in _ROWS for data in setting.sets
    ]


RESULT = Result(
    name="table5",
    title="Translations from around the mode",
    section="Table 5, section 7, and the appendix on its setup",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.plot_bars(
        document, ("bleu_last", "energy_norm"), height=5.6, stacked=True
    ),
    notes=(
        "MH and Gibbs: mean and standard error over the chains of a sentence. The other methods "
        "are deterministic: their standard error is a bootstrap over sentences, and much larger.",
        "In the setting `large` the acceptance of MH is delayed, by the two nearest positions: "
        "the same targets with fewer passes (the result `explanations` compares both).",
        "E_norm is the energy of the translations under the masked model, averaged over sentences.",
        "MBR over chains: of the translations of a sentence the one most like the others, by "
        "chrF. One translation per sentence, with an error over sentences.",
        "A source that is too long for the models counts as an empty translation.",
        f"The paper's chains accept every proposal for {FORCED_EPOCHS} epochs; "
        f"{LONG_FORCED_EPOCHS} is the default of `maskov translate`.",
        "The paper's models were trained on WMT (millions of pairs, distilled); for ours see the "
        "model card.",
    ),
    keep=("sentence_counts",),
)
