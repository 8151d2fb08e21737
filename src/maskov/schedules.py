"""What changes from epoch to epoch: target temperature, block size, forced acceptance, burn-in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from maskov.errors import refuse


@dataclass(frozen=True)
class LinearSchedule:
    """A value that falls by `rate` an epoch until it reaches `floor`."""

    start: float
    rate: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        refuse(
            (
                not all(map(math.isfinite, (self.start, self.rate, self.floor))),
                "a schedule needs finite numbers.",
            ),
            (self.rate < 0, f"a schedule falls: its rate must be 0 or more, not {self.rate}."),
            (
                self.floor > self.start,
                f"a schedule cannot start at {self.start:g}, below its floor of {self.floor:g}.",
            ),
        )

    def at(self, epoch: int) -> float:
        """Return the value of an epoch, counted from 0."""
        return max(self.floor, self.start - self.rate * epoch)

    def settled_at(self) -> float:
        """Return the epoch from which the value no longer moves."""
        return 0.0 if self.rate == 0 else (self.start - self.floor) / self.rate

    def __str__(self) -> str:
        if self.rate == 0:
            return f"{self.start:g}"
        return f"{self.start:g}-{self.rate:g}/epoch>={self.floor:g}"


@dataclass(frozen=True)
class Schedule:
    """The epochs of a run.

    While the target temperature moves there is no fixed target. Moving block sizes keep the
    target: they are chosen without looking at the chain. Forced acceptance is initialisation;
    so is burn-in, whose epochs are run and traced but kept out of samples and averages; they may
    have their own energy as their target, named as `parse_energy` reads it. Where no
    temperature or block is given, the kernel's own holds throughout.
    """

    epochs: int = 20
    burn_in: int = 0
    target_temperature: LinearSchedule | None = None
    block: LinearSchedule | None = None
    force_accept: int = 0
    burn_in_energy: str | None = None

    def __post_init__(self) -> None:
        heat, block = self.target_temperature, self.block
        refuse(
            (self.epochs < 1, f"a run has at least one epoch, not {self.epochs}."),
            (
                not 0 <= self.burn_in < self.epochs,
                f"burn-in must leave at least one of the {self.epochs} epochs, not take "
                f"{self.burn_in}.",
            ),
            (
                self.burn_in_energy is not None and self.burn_in == 0,
                "--burn-in-energy is the target of burn-in: give --burn-in, too.",
            ),
            (
                not 0 <= self.force_accept <= self.epochs,
                f"acceptance can be forced for 0 to {self.epochs} epochs, not {self.force_accept}.",
            ),
            (
                heat is not None and not heat.at(self.epochs - 1) > 0,
                "the target temperature would reach 0 before the last epoch; raise its floor "
                "or lower its rate (--target-temperature START:FALL:FLOOR).",
            ),
            (
                block is not None and min(block.start, block.floor) < 1,
                "a block has at least one position.",
            ),
        )

    def block_at(self, epoch: int) -> int:
        """Return the block size of an epoch, a whole number."""
        return 1 if self.block is None else max(1, round(self.block.at(epoch)))

    def fixed_target(self) -> bool:
        """Whether all kept epochs have one target and decide acceptance by it."""
        moving = self.target_temperature
        settled = moving is None or moving.settled_at() <= self.burn_in
        return settled and self.force_accept <= self.burn_in
