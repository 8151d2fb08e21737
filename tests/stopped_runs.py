"""Runs that stop where a test wants them to, or to which something happens on the way."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from maskov import Metropolis, Norm, Run, Schedule, sample
from maskov.errors import Interrupted
from maskov.runs.state import START, read_header
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
EPOCHS, CHAINS = 6, 4


def header_of(checkpoint: Path) -> dict[str, Any]:
    """Return the numbers that a checkpoint says of itself."""
    with checkpoint.open("rb") as file:
        file.seek(START)
        return read_header(file)[1]


class Stopper:
    """Says yes after it was asked so many times; `acts` happen at some of them."""

    def __init__(self, at: int = 10**9, acts: dict[int, Callable[[], object]] | None = None):
        self.at, self.asked, self.acts = at, 0, acts or {}

    def __call__(self) -> bool:
        self.asked += 1
        if self.asked in self.acts:
            self.acts[self.asked]()
        return self.asked > self.at


def cut(folder: Path, at: int, *arguments: Any, **settings: Any) -> None:
    """Sample until the stop was asked for so many times."""
    with pytest.raises(Interrupted):
        sample(*arguments, out=folder, stop=Stopper(at), **settings)


class Heard:
    """A listener that keeps what it is told, by the name of the call."""

    def __init__(self) -> None:
        self.told: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self.told[name].append(values)


def run(folder: Path, looks: int = 10**9, acts=None, **more) -> Run:
    """Sample until the stop was asked for so many times; `acts` happen at some."""
    given = {"chains": CHAINS, "length": (3, 5), "thin": 1, "resident": 2, "checkpoint_every": 0}
    schedule = Schedule(epochs=EPOCHS, burn_in=1)
    return sample(
        MODEL, Metropolis(Norm()), schedule, out=folder, stop=Stopper(looks, acts),
        **given | {"seed": 1} | more,
    )  # fmt: skip
