"""Delayed acceptance: test a proposal cheaply first, and pay for the rest only if it passes.

With log R the Metropolis-Hastings ratio of a move and log R_1, log R_2, ... approximations of it
that change sign when the move is reversed, the tests

    u_1 < R_1,   u_2 < R_2 / R_1,   ...,   u_n < R / R_{n−1}

with independent uniform numbers accept with a probability that is in detailed balance with the
same target as one test of R (Christen & Fox 2005, applied again and again). A rejection anywhere is
final, so what the later tests need is never computed. An approximation leaves parts of the energy
out: expensive energies of a sum, or the masked passes far from the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

import torch

from maskov.energies.base import Energy, MaskedEnergy
from maskov.energies.ordered import Ordered
from maskov.errors import InputError, refuse
from maskov.moves.base import ranked
from maskov.types import Bool, Int, Tensor, inside

# All masked passes of a sequence cost about this many, where stages are put in order.
_ALL_PASSES = 16.0


@dataclass(frozen=True)
class DelayedAcceptance:
    """Which cheap tests of the masked passes come first.

    There is an early test for each number of `nearest` positions: of (1, 4) the first knows the
    position next to the change, the second the nearest four, the last all (0: all at once; None: as
    suits the energy of the kernel).
    """

    nearest: tuple[int, ...] | int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.nearest, int):
            object.__setattr__(self, "nearest", (self.nearest,) if self.nearest else ())
        refuse(
            (
                any(count < 1 for count in self.early)
                or any(one >= next_ for one, next_ in pairwise(self.early)),
                f"early tests score more and more of the nearest positions, as in 1,2,4, not "
                f"{','.join(map(str, self.early))}.",
            ),
        )

    @property
    def early(self) -> tuple[int, ...]:
        """How many positions each early test knows."""
        return self.nearest if isinstance(self.nearest, tuple) else ()

    def __str__(self) -> str:
        return ",".join(map(str, self.early)) or "0"


def parse_delayed(given: str | int | Sequence[int]) -> DelayedAcceptance:
    """Read early tests: numbers of positions such as `2` or `1,2,4`, or `off`."""
    if given == "off":
        return DelayedAcceptance(0)
    listed = given.split(",") if isinstance(given, str) else given
    try:
        counts = tuple(map(int, (listed,) if isinstance(listed, int) else listed))
    except ValueError:
        raise InputError(
            f"--delayed takes numbers of positions such as 2 or 1,2,4, or off, not '{given}'."
        ) from None
    return DelayedAcceptance(() if counts == (0,) else counts)


@dataclass(frozen=True)
class Stage:
    """One test: how much of the energy it knows.

    Of the masked passes, those of the `nearest` positions (None: of all; 0: of none but the changed
    one). Of every other part of the energy, in the plan's order, how many of its stages: at
    `levels` 0 it is left out.
    """

    nearest: int | None
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class StagedPart:
    """A part of an energy that is not masked passes: its weight, its stages, and their columns."""

    weight: float
    stages: tuple[Energy, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class AcceptanceStages:
    """The tests of an energy in order, the cheapest first; the last decides by the exact ratio."""

    __test__ = False  # not a test of pytest's

    energy: Energy
    delayed: DelayedAcceptance = DelayedAcceptance(0)

    @cached_property
    def others(self) -> tuple[StagedPart, ...]:
        """The parts that are not masked passes, with the column of each of their stages.

        The first columns are the parts of the energy, those of early stages follow.
        """
        found, column = list[StagedPart](), len(self.energy.parts)
        for place, (weight, part) in enumerate(self.energy.parts):
            if isinstance(part, MaskedEnergy):
                continue
            stages = part.stages()
            if not stages or stages[-1] is not part:
                raise InputError(f"the last stage of the energy '{part}' must be itself.")
            early = len(stages) - 1
            columns = (*range(column, column + early), place)
            found.append(StagedPart(weight, stages, columns))
            column += early
        return tuple(found)

    def columns(self, width: int, before: Ordered | None = None) -> int:
        """Return how many values a sequence of a width has.

        There is one for each part and for each early stage of one, then what parts remember; of
        that, only what comes `before` one of them, if it is given.
        """
        every = [stage for part in self.others for stage in part.stages]
        plain = len(self.energy.parts) + len(every) - len(self.others)
        counted = takewhile(lambda stage: stage is not before, every)
        return plain + sum(one.cells(width) for one in counted if isinstance(one, Ordered))

    def memory(self, energy: Ordered, width: int) -> slice:
        """Return the columns of what one of the parts remembers."""
        begin = self.columns(width, energy)
        return slice(begin, begin + energy.cells(width))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The tests."""
        # Each increment adds a part: its cost, how the masked passes or the levels change.
        increments: list[tuple[float, Stage | int]] = []
        if self.energy.needs_passes:
            increments += [(float(count), Stage(count)) for count in self.delayed.early]
            increments.append((_ALL_PASSES, Stage(None)))
        increments += [(s.cost, place) for place, p in enumerate(self.others) for s in p.stages]
        increments.sort(key=lambda increment: increment[0])  # stable: a part's own order stays
        levels, masked, found = [0] * len(self.others), Stage(0), list[Stage]()
        added_before: Stage | int | None = None
        for _, added in increments:
            if isinstance(added, Stage):
                masked = added
            else:
                levels[added] += 1
            stage = Stage(masked.nearest, tuple(levels))
            if self._joins(added_before, added, levels):
                found[-1] = stage
            else:
                found.append(stage)
            added_before = added
        return tuple(found)

    def _joins(self, before: Stage | int | None, added: Stage | int, levels: list[int]) -> bool:
        """Whether what is added belongs to the same test as what was added before it.

        Whole parts that follow each other do. What one of them gains the other may lose, as a
        classifier and a distance do, and a test by one alone would reject what both together want.
        """
        return (
            isinstance(before, int)
            and isinstance(added, int)
            and before != added
            and all(levels[one] == len(self.others[one].stages) for one in (before, added))
        )

    def other_drop(
        self, stage: Stage, old: Tensor, new: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return by how much the other parts fall, as a stage knows it; see `columns`.

        Parts may have other `weights` than the energy gives them, in its order.
        """
        energy_drop = torch.zeros_like(old[:, 0])
        for level, part in zip(stage.levels, self.others, strict=True):
            if level:
                column = part.columns[level - 1]
                weight = part.weight if weights is None else weights[part.columns[-1]]
                energy_drop = energy_drop + weight * (old[:, column] - new[:, column])
        return energy_drop

    def new_evaluations(self, number: int) -> list[tuple[int, int, Energy]]:
        """Return what stage `number` is the first to evaluate: the part, the column, the energy."""
        before = self.stages[number - 1].levels if number else (0,) * len(self.others)
        levels = zip(before, self.stages[number].levels, self.others, strict=True)
        return [
            (index, part.columns[level], part.stages[level])
            for index, (was, now, part) in enumerate(levels)
            for level in range(was, now)
        ]


def nearness(
    place: Int[Tensor, " n"], lengths: Int[Tensor, " n"], width: int
) -> Int[Tensor, "n length"]:
    """Count, for every position, those that are nearer to the place; of two the left one is.

    The place itself and positions beyond the length have `width`, which is more than any other. The
    numbers depend on the place and the length alone, so that a move and its reverse agree on them.
    """
    position = torch.arange(width, device=place.device)
    offset = position - place[:, None]
    distance = offset.abs()
    left, right = place[:, None], (lengths - 1 - place)[:, None]
    # Those at a smaller distance on both sides, and the left one at the same distance.
    nearer = torch.minimum(distance - 1, left) + torch.minimum(distance - 1, right)
    nearer = nearer + ((offset > 0) & (distance <= left))
    return nearer.masked_fill((offset == 0) | (offset > right), width)


def near_window(
    start: Int[Tensor, " n"], size: Int[Tensor, " n"], lengths: Int[Tensor, " n"], width: int
) -> Int[Tensor, "n length"]:
    """Count, for every position, those outside a window that are nearer to it, as `near_all` does.

    The window may be empty. The numbers depend on how many stand on either side, so that a move
    that replaces the window by one of another size and its reverse agree on them.
    """
    position = torch.arange(width, device=start.device)
    left, right = position - (start + size)[:, None] + 1, start[:, None] - position
    window, far = (left <= 0) & (right <= 0), 2 * width
    left, right = left.masked_fill(left <= 0, far), right.masked_fill(right <= 0, far)
    return _nearer(left, right, window, lengths)


def near_all(
    changed: Bool[Tensor, "n length"], lengths: Int[Tensor, " n"]
) -> Int[Tensor, "n length"]:
    """Count, for every position, the unchanged ones that are nearer to any changed one.

    Changed positions have negative numbers, those beyond the length more than any other.
    """
    width = changed.shape[1]
    position, far = torch.arange(width, device=changed.device).expand(changed.shape), 2 * width
    left = position - position.masked_fill(~changed, -far).cummax(1).values
    right = position.masked_fill(~changed, far).flip(1).cummin(1).values.flip(1) - position
    return _nearer(left, right, changed, lengths)


def _nearer(
    left: Int[Tensor, "n length"],
    right: Int[Tensor, "n length"],
    window: Bool[Tensor, "n length"],
    lengths: Int[Tensor, " n"],
) -> Int[Tensor, "n length"]:
    """Rank positions by how far each is from what is on its left and right; see `near_all`."""
    # The window comes first; in a tie the one to the left of it.
    key = torch.minimum(2 * left + 1, 2 * right).masked_fill(window, -1)
    return ranked(key.double(), inside(lengths, window.shape[1])) - window.sum(1, keepdim=True)
