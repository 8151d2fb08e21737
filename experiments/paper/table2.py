"""Table 2: proposal temperature, unconditional text."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper import printed
from experiments.paper.shared import text

TEMPERATURES = (1.2, 1.0, 0.8, 0.5)
SAMPLERS = ("raw", "deg")
QUANTITIES = ("energy_raw", "novel", "perplexity")

RESULT = Result(
    name="table2",
    title="Temperature of the proposal, unconditional text",
    section="Table 2, section 6.1",
    cells=lambda setting: {
        f"{name}, {value}": text(setting, name, temperature=value)
        for value in (1.0, 0.5, 1.2, 0.8)
        for name in SAMPLERS
    },
    entries=lambda setting: [
        Entry(quantity, name, value, f"{name}, {value}", printed.TABLE2[name][quantity][value])
        for quantity in QUANTITIES
        for name in SAMPLERS
        for value in TEMPERATURES
    ],
    draw=lambda document: figures.plot_sweep(document, QUANTITIES, "proposal temperature"),
    notes=(
        "Perplexity is the mean over sentences of the judge's exp(NLL / tokens), as we read the "
        "paper's column; its judge is GPT-2 XL, ours a small causal LM trained on the same text as "
        "the masked model, so only orders and ratios compare.",
        "E_raw is defined up to a shift of the logits: the paper's positive values are on another "
        "scale.",
    ),
)
