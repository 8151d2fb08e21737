"""Figure 2: annealing the target: acceptance, energy and BLEU over epochs."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper.shared import ANNEAL_RATE, annealed

SAMPLERS = ("raw", "norm")

RESULT = Result(
    name="figure2",
    title="Annealing towards the mode",
    section="Figure 2, section 7",
    cells=lambda setting: {name: annealed(setting, name, ANNEAL_RATE) for name in SAMPLERS},
    entries=lambda setting: [
        Entry(quantity, name, "after the start", name)
        for quantity in ("acceptance", "energy_norm", "bleu_last")
        for name in SAMPLERS
    ],
    draw=lambda document: figures.plot_epochs(
        document, {name: name for name in SAMPLERS}, ("acceptance", "energy_norm", "bleu")
    ),
    notes=(
        f"The target temperature falls from 1 by {ANNEAL_RATE} per epoch; the proposal temperature "
        "is 0.8; the first two epochs accept every proposal, as in the appendix on Table 5.",
        "While the temperature falls, there is no fixed target.",
    ),
    keep=("epochs", "sentence_counts"),
)
