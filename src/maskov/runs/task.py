"""A turn: one group of chains goes on from where it stands to a later point.

A turn is all that a worker needs to know beside the run itself, and what it returns is all there is
to say about it. It can be taken anywhere, and again: the same progress leads to the same chains.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskov.errors import MaskovError
from maskov.runs.group import Progress
from maskov.runs.precision_check import Shift
from maskov.types import ChainState, Traces


@dataclass(frozen=True)
class Turn:
    """What is asked: take `group` on, to the epoch `until` or for so many `seconds`.

    Where the turn ends decides nothing but when it is over. A group that has not begun is only
    filled; one that has flown its pilot goes on by `nearest`, once that is chosen.
    """

    group: int
    progress: Progress
    nearest: int
    until: int
    seconds: float


@dataclass(frozen=True)
class Taken:
    """What became of a turn: the new progress and the rows of the epochs it completed.

    `passes` are those it took, `seen` a few chains to look at, `stopped` says that it was cut
    short because somebody asked to stop, `failure` that the model broke down: the group then stands
    where its turn began. `shift` is what a coarser precision does to energies,
    measured where the first group begins.
    """

    group: int
    progress: Progress
    rows: list[tuple[int, Traces]] = field(default_factory=list)
    passes: int = 0
    seen: ChainState | None = None
    stopped: bool = False
    shift: Shift | None = None
    failure: MaskovError | None = None
