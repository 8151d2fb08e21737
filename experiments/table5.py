"""Table 5: annealed translations against deterministic methods and an autoregressive model."""

from __future__ import annotations

from experiments import figures, paper
from experiments.cell import Cell
from experiments.context import pair_of
from experiments.deterministic import DeterministicTranslations
from experiments.result import Entry, Result
from experiments.settings import Setting
from experiments.studies import (
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
_OURS = {f"MH {name}, {LONG_FORCED_EPOCHS} forced epochs": name for name in ("norm", "raw")}
_ROWS = [*list(paper.TABLE5)[:-1], *_OURS, *list(paper.TABLE5)[-1:]]


def _cell(setting: Setting, row: str, data: str) -> Cell:
    """Return the cell of one row on one test set."""
    size = setting.translation
    if row == "warm start":
        return DeterministicTranslations("greedy", data, size.tests)
    if row.startswith("mask-predict"):
        return DeterministicTranslations("mask-predict", data, size.tests, iterations=10)
    if row == "autoregressive model":
        return DeterministicTranslations("ar", data, size.tests, beam=5)
    # Only the final translations are scored.
    last = {"data": data, "sentences": size.tests, "longest": None, "trace": "kept"}
    if row.startswith("degenerate"):
        return translations(
            setting, "deg", temperature=PROPOSAL_TEMPERATURE, burn_in=0, every=size.epochs, **last
        )
    sampler = _OURS.get(row, row.removeprefix("MH "))
    forced = LONG_FORCED_EPOCHS if row in _OURS else FORCED_EPOCHS
    kept = size.epochs - initial_epochs(setting, forced)
    return annealed(setting, sampler, ANNEAL_RATE, forced, every=kept, **last)


def _cells(setting: Setting) -> dict[str, Cell]:
    deterministic = [row for row in _ROWS if not row.startswith(("MH", "degenerate"))]
    chains = [row for row in _ROWS if row not in deterministic]
    return {
        f"{row}, {data}": _cell(setting, row, data)
        for rows in (deterministic, chains)
        for data in setting.sets
        for row in rows
    }


def _entries(setting: Setting) -> list[Entry]:
    entries = []
    for row in _ROWS:
        for data in setting.sets:
            numbers = paper.TABLE5.get(row) if data in _PAPERS else None
            printed = None if numbers is None else numbers[pair_of(data)]
            entries.append(Entry("bleu_last", row, data, f"{row}, {data}", printed))
    return entries + [
        Entry("energy_norm", row, data, f"{row}, {data}") for row in _ROWS for data in setting.sets
    ]


RESULT = Result(
    name="table5",
    title="Translations from around the mode",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.plot_bars(
        document, ("bleu_last", "energy_norm"), height=5.6, stacked=True
    ),
    notes=(
        "MH and Gibbs: mean and standard error over five chains per sentence. The other methods "
        "are deterministic: their standard error is a bootstrap over sentences, and much larger.",
        "E_norm is the energy of the translations under the masked model, averaged over sentences.",
        f"The paper's chains accept every proposal for {FORCED_EPOCHS} epochs; "
        f"{LONG_FORCED_EPOCHS} is the default of `maskov translate`.",
        "The paper's models were trained on WMT (millions of pairs, distilled); for ours see the "
        "model card.",
    ),
)
