"""Table 6: how good unconditional text is: perplexity, and people's ratings where there are any."""

from __future__ import annotations

from experiments import figures, paper
from experiments.result import Entry, Result
from experiments.settings import Setting
from experiments.studies import text
from experiments.work import Found, Work
from experiments.workshop import Workshop

SAMPLERS = ("deg", "norm", "raw")
SCALES = ("coherence", "fluency")


def _models(setting: Setting) -> tuple[str, ...]:
    return ("base", "large") if setting.name == "paper" else ("base",)


def _cells(setting: Setting) -> dict[str, Work]:
    return {
        f"{model}, {name}": text(setting, name, model=model)
        for model in _models(setting)
        for name in SAMPLERS
    }


def _entries(setting: Setting) -> list[Entry]:
    entries = [
        Entry("perplexity", name, model, f"{model}, {name}", numbers[name]["perplexity"])
        for model, numbers in paper.TABLE6.items()
        for name in SAMPLERS
    ]
    return entries + [
        Entry(scale, name, model, f"ratings, {model}, {name}", numbers[name][scale])
        for scale in SCALES
        for model, numbers in paper.TABLE6.items()
        for name in SAMPLERS
    ]


def condition(model: str, name: str) -> str:
    """Return the name of a condition in a study, which is that of its file of texts."""
    return f"table6-{model}-{name}"


def ratings(workshop: Workshop) -> dict[str, Found]:
    """Read people's ratings from a study of the texts that this result wrote."""
    if workshop.ratings is None:
        return {}
    from maskov.errors import InputError
    from maskov.ui.ratings import load

    study = load(workshop.ratings)
    by_name = {one.name.removesuffix(".txt"): one for one in study.conditions}
    found = {}
    for model in paper.TABLE6:
        for name in SAMPLERS:
            one = by_name.get(condition(model, name))
            if one is None or not one.ratings:
                continue
            values = {}
            for scale in SCALES:
                mean = getattr(one, scale)
                # A bootstrap interval over items; its half is about two standard errors.
                error = None if mean.low is None else (mean.high - mean.low) / 2 / 1.96
                values[scale] = {"value": mean.value, "standard_error": error, "n": one.rated}
            found[f"ratings, {model}, {name}"] = {
                "kind": "ratings", "signature": study.signature, "seed": None, "values": values,
                "raters": one.raters, "ratings": one.ratings,
            }  # fmt: skip
    if not found:
        names = ", ".join(condition("base", name) for name in SAMPLERS)
        raise InputError(
            f"the study '{workshop.ratings}' has no ratings of this result's texts: its conditions "
            f"are to be named {names}."
        )
    return found


RESULT = Result(
    name="table6",
    title="Quality of unconditional text",
    cells=_cells,
    entries=_entries,
    draw=lambda document: figures.bars(document, ("perplexity", *SCALES)),
    notes=(
        "Coherence and fluency are people's, from a blind study of these very texts (`maskov "
        "rate`, "
        "`--ratings STUDY`); where nobody has rated, it says so.",
        "Perplexity as in Table 2. Our one masked model stands in the column of BERT-base.",
    ),
    also=ratings,
)
