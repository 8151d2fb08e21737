"""Figure 1: E_norm and BLEU over epochs, for both MH schemes and degenerate Gibbs."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper.shared import translations

SAMPLERS = ("norm", "raw", "deg")

RESULT = Result(
    name="figure1",
    title="Energy and BLEU over epochs",
    section="Figure 1, section 5",
    cells=lambda setting: {name: translations(setting, name) for name in SAMPLERS},
    entries=lambda setting: [
        Entry(quantity, name, "after burn-in", name)
        for quantity in ("energy_norm", "bleu")
        for name in SAMPLERS
    ],
    draw=lambda document: figures.plot_epochs(
        document, {name: name for name in SAMPLERS}, ("energy_norm", "bleu")
    ),
    notes=(
        "The paper plots −E_norm and gives no numbers; bands are two standard errors over chains.",
        "All chains start from the same greedy pass.",
    ),
    keep=("epochs",),
)
