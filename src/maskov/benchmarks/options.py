"""Options of a benchmark, validated before anything is run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from maskov.benchmarks.models import PRECISIONS
from maskov.benchmarks.variants import VARIANTS
from maskov.errors import InputError
from maskov.models import DEFAULT_MODEL
from maskov.random import CounterRng

ENERGIES = ("raw", "norm")
# A letter for each plain row, one for all of maskov's rows, and words for the scorers and for the
# time until the command answers.
ROWS = ("a", "b", "c", "score", "start")


@dataclass(frozen=True)
class Options:
    """Options shared by all rows.

    `seconds` are those of the plain rows and of the scorers, and with `limited` of maskov's rows
    too, which then have fewer chains where all would take longer.
    """

    model: str = DEFAULT_MODEL
    device: str = "auto"
    precision: str = "float32"
    energy: str = "raw"
    chains: int = 64
    length: tuple[int, int] = (20, 20)
    epochs: int = 12
    burn_in: int = 4
    rows: tuple[str, ...] = ROWS
    seconds: float = 20.0
    seed: int = 0
    limited: bool = False

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, PRECISIONS)
        _check_choice("energy", self.energy, ENERGIES)
        if self.chains < 1:
            raise InputError(f"--chains must be at least one chain, not {self.chains}.")
        shortest, longest = self.length
        if not 1 <= shortest <= longest:
            raise InputError(f"--length {shortest}:{longest} is no range; write 20 or 15:45.")
        if not 1 <= self.burn_in < self.epochs:
            raise InputError(
                f"--burn-in must be 1 to {self.epochs - 1} of the {self.epochs} epochs, not "
                f"{self.burn_in}: these epochs warm up and are not timed."
            )
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise InputError(f"--seconds must be above 0, not {self.seconds:g}.")
        if not self.rows:
            raise InputError(f"--rows names no row; use {', '.join(self.known_rows())}.")
        for row in self.rows:
            _check_choice("row", row, self.known_rows())
        CounterRng(self.seed)

    @staticmethod
    def known_rows() -> tuple[str, ...]:
        """Return the valid values of `rows`: letters for groups, and names of variants."""
        return (*ROWS, *(variant.name for variant in VARIANTS))

    @property
    def fixed_length(self) -> bool:
        """Whether all chains have one length."""
        return self.length[0] == self.length[1]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Options:
        """Build options from plain data, such as parsed JSON."""
        shortest, longest = data["length"]
        return cls(**data | {"length": (shortest, longest), "rows": tuple(data["rows"])})


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"unknown {what} '{value}'; use one of {', '.join(choices)}.")
