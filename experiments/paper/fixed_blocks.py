"""A test of an explanation, not in the paper: acceptance by block size, in the same epochs."""

from __future__ import annotations

from dataclasses import replace

from experiments.lib import figures
from experiments.lib.result import Entry, Result
from experiments.paper.shared import translations

SIZES = (1, 2, 4, 8)
SAMPLERS = ("raw", "norm")
EPOCHS = 2

RESULT = Result(
    name="fixed-blocks",
    title="Acceptance by block size",
    section="none; a test of ours",
    cells=lambda setting: {
        f"{name}, {size}": replace(
            translations(setting, name, block=size), epochs=EPOCHS, burn_in=0, every=EPOCHS
        )
        for size in SIZES
        for name in SAMPLERS
    },
    entries=lambda setting: [
        Entry(quantity, name, float(size), f"{name}, {size}")
        for quantity in ("acceptance", "novel")
        for name in SAMPLERS
        for size in SIZES
    ],
    draw=lambda document: figures.plot_sweep(document, ("acceptance", "novel"), "block size"),
    notes=(
        f"The first {EPOCHS} epochs from the greedy pass, blocks of one size: while blocks shrink, "
        "their size and the age of a chain change together.",
    ),
)
