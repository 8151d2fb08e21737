"""Table 6: quality of unconditional text: perplexity, and human ratings if there are any."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.cell import Cell, CellResult
from experiments.lib.context import Context
from experiments.lib.result import Entry, Result
from experiments.lib.settings import Setting
from experiments.paper import printed
from experiments.paper.shared import text

SAMPLERS = ("deg", "norm", "raw")
SCALES = ("coherence", "fluency")


def _models(setting: Setting) -> tuple[str, ...]:
    return ("base", "large") if setting.name == "paper" else ("base",)


def _cells(setting: Setting) -> dict[str, Cell]:
    return {
        f"{model}, {name}": text(setting, name, model=model)
        for model in _models(setting)
        for name in SAMPLERS
    }


def _entries(setting: Setting) -> list[Entry]:
    entries = [
        Entry("perplexity", name, model, f"{model}, {name}", numbers[name]["perplexity"])
        for model, numbers in printed.TABLE6.items()
        for name in SAMPLERS
    ]
    return entries + [
        Entry(scale, name, model, f"ratings, {model}, {name}", numbers[name][scale])
        for scale in SCALES
        for model, numbers in printed.TABLE6.items()
        for name in SAMPLERS
    ]


def condition(model: str, name: str) -> str:
    """Return the name of a study's condition, which is also that of its file of texts."""
    return f"table6-{model}-{name}"


def ratings(context: Context) -> dict[str, CellResult]:
    """Read human ratings from a study of the texts that this result wrote."""
    if context.ratings is None:
        return {}
    from maskov.errors import InputError
    from maskov.ratings import load

    file, key = context.ratings
    study = load([file], key)
    by_name = {rated.name: rated for rated in study.conditions}
    cells = {}
    for model in printed.TABLE6:
        for name in SAMPLERS:
            rated = by_name.get(condition(model, name))
            if rated is None or not rated.ratings:
                continue
            values = {}
            for scale in SCALES:
                mean = getattr(rated, scale)
                # Half of a 95 % bootstrap interval over items is 1.96 standard errors.
                error = None if mean.low is None else (mean.high - mean.low) / 2 / 1.96
                values[scale] = {"value": mean.value, "standard_error": error, "n": rated.rated}
            cells[f"ratings, {model}, {name}"] = {
                "kind": "ratings", "signature": study.signature, "seed": None, "values": values,
                "raters": rated.raters, "ratings": rated.ratings,
            }  # fmt: skip
    if not cells:
        names = ", ".join(condition("base", name) for name in SAMPLERS)
        raise InputError(
            f"'{file}' has no ratings of this result's texts: name the conditions {names}."
        )
    return cells


RESULT = Result(
    name="table6",
    title="Quality of unconditional text",
    section="Table 6, section 8",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.plot_bars(document, ("perplexity", *SCALES)),
    notes=(
        "Coherence and fluency are human ratings from a blind study of these texts (`maskov rate`, "
        "`--ratings FILE KEY`), if there is one.",
        "Perplexity as in Table 2. Our masked model is in the column of BERT-base.",
    ),
    extra_cells=ratings,
)
