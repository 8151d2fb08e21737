"""Table 5: translations from around the mode, beside rules and an autoregressive model."""

from __future__ import annotations

from experiments import figures, paper
from experiments.result import Entry, Result
from experiments.rules import Written
from experiments.settings import Setting
from experiments.studies import (
    ANNEAL,
    FORCED,
    LONG_FORCED,
    PROPOSAL,
    annealed,
    settled_after,
    translations,
)
from experiments.work import Work
from experiments.workshop import pair_of

# The sets that the paper's numbers are of.
_PAPERS = {"newstest2014.deen", "newstest2016.roen"}
# Rows of ours, which the paper has not.
_OURS = {f"MH {name}, {LONG_FORCED} forced epochs": name for name in ("norm", "raw")}
_ROWS = [*list(paper.TABLE5)[:-1], *_OURS, *list(paper.TABLE5)[-1:]]


def _row(setting: Setting, row: str, data: str) -> Work:
    """Return the work of one row on one test set."""
    size = setting.translation
    if row == "warm start":
        return Written("greedy", data, size.tests)
    if row.startswith("mask-predict"):
        return Written("mask-predict", data, size.tests, iterations=10)
    if row == "autoregressive model":
        return Written("ar", data, size.tests, beam=5)
    # Only what the chains end with is scored.
    last = {"data": data, "sentences": size.tests, "longest": None, "trace": "kept"}
    if row.startswith("degenerate"):
        return translations(
            setting, "deg", temperature=PROPOSAL, burn_in=0, every=size.epochs, **last
        )
    sampler = _OURS.get(row, row.removeprefix("MH "))
    forced = LONG_FORCED if row in _OURS else FORCED
    kept = size.epochs - settled_after(setting, forced)
    return annealed(setting, sampler, ANNEAL, forced, every=kept, **last)


def _cells(setting: Setting) -> dict[str, Work]:
    rules = [row for row in _ROWS if not row.startswith(("MH", "degenerate"))]
    chains = [row for row in _ROWS if row not in rules]
    return {
        f"{row}, {data}": _row(setting, row, data)
        for rows in (rules, chains)
        for data in setting.sets
        for row in rows
    }


def _entries(setting: Setting) -> list[Entry]:
    entries = []
    for row in _ROWS:
        for data in setting.sets:
            printed = paper.TABLE5.get(row) if data in _PAPERS else None
            beside = None if printed is None else printed[pair_of(data)]
            entries.append(Entry("bleu_last", row, data, f"{row}, {data}", beside))
    return entries + [
        Entry("energy_norm", row, data, f"{row}, {data}") for row in _ROWS for data in setting.sets
    ]


RESULT = Result(
    name="table5",
    title="Translations from around the mode",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.bars(
        document, ("bleu_last", "energy_norm"), height=5.6, stacked=True
    ),
    notes=(
        "MH and Gibbs: mean over five chains a sentence, the error over chains. The rest are rules "
        "without chance: the error is over sentences, by bootstrap, and much larger.",
        "E_norm is that of the translations under the masked model, the mean of a sentence.",
        f"The paper's chains accept everything for {FORCED} epochs; rows with {LONG_FORCED} are as "
        "`maskov translate` does it.",
        "The paper's models were trained on WMT (millions of pairs, distilled); ours on what the "
        "model card says.",
    ),
)
