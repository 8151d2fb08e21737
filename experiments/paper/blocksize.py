"""From the appendix: acceptance over epochs while blocks shrink."""

from __future__ import annotations

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper.shared import FIRST_BLOCK, SHRINK_SHARE, blocks

SAMPLERS = ("raw", "norm", "deg")

RESULT = Result(
    name="blocksize",
    title="Acceptance while blocks shrink",
    section="the appendix on annealing block size",
    cells=lambda setting: {name: blocks(setting, name) for name in SAMPLERS},
    entries=lambda setting: [
        Entry(quantity, name, "after burn-in", name)
        for quantity in ("acceptance", "novel")
        for name in SAMPLERS
    ],
    draw=lambda document: figures.plot_epochs(
        document, {name: name for name in SAMPLERS}, ("acceptance", "novel")
    ),
    notes=(
        f"Blocks shrink from {FIRST_BLOCK} positions to one after {SHRINK_SHARE:.0%} of the "
        "epochs; the paper gives neither sizes nor numbers.",
        "Chains start from the greedy pass; burn-in epochs are shown.",
    ),
    keep=("epochs",),
)
