"""The appendix's figure of block sizes: acceptance over epochs while blocks shrink."""

from __future__ import annotations

from experiments import figures
from experiments.result import Entry, Result
from experiments.studies import BLOCK, FALLING, blocks

SAMPLERS = ("raw", "norm", "deg")

RESULT = Result(
    name="blocksize",
    title="Acceptance while blocks shrink",
    cells=lambda setting: {name: blocks(setting, name) for name in SAMPLERS},
    entries=lambda setting: [
        Entry(quantity, name, "after burn-in", name)
        for quantity in ("acceptance", "novel")
        for name in SAMPLERS
    ],
    draw=lambda document: figures.epochs(
        document, {name: name for name in SAMPLERS}, ("acceptance", "novel")
    ),
    notes=(
        f"Blocks of {BLOCK} positions at first, single ones after {FALLING:.0%} of the epochs; the "
        "paper gives neither sizes nor numbers.",
        "Chains start from the greedy pass, burn-in epochs are shown.",
    ),
)
