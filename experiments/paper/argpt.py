"""From the appendix: an autoregressive model as the energy, masked conditionals as proposals."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper.shared import text

SAMPLERS = ("autoregressive", "raw", "norm")
QUANTITIES = ("acceptance", "novel", "perplexity")

RESULT = Result(
    name="argpt",
    title="An autoregressive energy, masked proposals",
    section="the appendix on limitations",
    cells=lambda setting: {name: text(setting, name) for name in SAMPLERS},
    entries=lambda setting: [
        Entry(quantity, name, "text", name)
        for quantity in (*QUANTITIES, "proposed_novel")
        for name in SAMPLERS
    ],
    draw=lambda document: figures.plot_bars(document, QUANTITIES),
    notes=(
        "The paper says 'a high rejection rate and low exploration' and gives no numbers.",
        "The energy is −log p under the judge, so these chains minimise its perplexity, which "
        "therefore says nothing about quality here.",
    ),
)
