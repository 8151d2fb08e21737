"""Table 1: proposal temperature, translation."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper import printed
from experiments.paper.shared import translations

TEMPERATURES = (2.0, 1.5, 1.0, 0.8, 0.5)
SAMPLERS = ("norm", "deg")

RESULT = Result(
    name="table1",
    title="Temperature of the proposal, translation",
    section="Table 1, section 6.1",
    cells=lambda setting: {
        f"{name}, {value}": translations(setting, name, temperature=value)
        for value in (1.0, 0.5, 2.0, 0.8, 1.5)  # the most informative first
        for name in SAMPLERS
    },
    entries=lambda setting: [
        Entry(quantity, name, value, f"{name}, {value}", printed.TABLE1[name][quantity][value])
        for quantity in ("energy_norm", "novel", "bleu")
        for name in SAMPLERS
        for value in TEMPERATURES
    ],
    draw=lambda document: figures.plot_sweep(
        document, ("energy_norm", "novel", "bleu"), "proposal temperature"
    ),
    notes=(
        "E_norm is the mean per sentence; the paper's is a sum over its set, in thousands.",
        "The proposal temperature does not change the target: MH samples the same distribution at "
        "different speeds.",
    ),
)
