"""Runs that stop where a test wants them to, or to which something happens on the way."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch

from maskov import Metropolis, Norm, Run, Schedule, sample
from maskov.runs.state import START, read_header
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
EPOCHS, CHAINS = 6, 4


def header_of(checkpoint: Path) -> dict[str, Any]:
    """Return the numbers that a checkpoint says of itself."""
    with checkpoint.open("rb") as file:
        file.seek(START)
        return read_header(file)[1]


def run(
    folder: Path, kernel=None, looks: int | Callable[[], bool] = 10**9, acts=None, **more
) -> Run:
    """Sample until the stop was asked for so many times, or says yes; `acts` happen at some."""
    asked = count()

    def stop() -> bool:
        look = next(asked)
        if look in (acts or {}):
            acts[look]()
        return look > looks if isinstance(looks, int) else looks()

    given = {"chains": CHAINS, "length": (3, 5), "thin": 1, "resident": 2, "checkpoint_every": 0}
    schedule = Schedule(epochs=EPOCHS, burn_in=1)
    return sample(
        MODEL, kernel or Metropolis(Norm()), schedule, out=folder, stop=stop,
        **given | {"seed": 1} | more,
    )  # fmt: skip
