"""A task: one group of chains goes on from where it stands to a later point.

A task is all that a worker needs to know beside the run itself. It can be carried out anywhere, and
again: the same state leads to the same chains.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskov.config import PrecisionCheck
from maskov.errors import MaskovError
from maskov.runs.group import GroupState
from maskov.types import Chains, Traces


class TaskOver(Exception):  # noqa: N818 - not a fault
    """The task has lasted long enough."""


@dataclass(frozen=True)
class Task:
    """Take `group` on, to the epoch `until` or for so many `seconds`.

    Where the task ends decides nothing but when it is over. A group that has not begun is only
    filled.
    """

    group: int
    state: GroupState
    until: int
    seconds: float


@dataclass(frozen=True)
class TaskResult:
    """The new state of a group and the rows of the epochs that its task completed.

    `passes` are those it took, `shown` a few chains to look at, `stopped` says that it was cut
    short because somebody asked to stop, `failure` that the model broke down: the group then
    stands where its task began. `check` is what a coarser precision does to energies, measured
    where the first group begins.
    """

    group: int
    state: GroupState
    rows: list[tuple[int, Traces]] = field(default_factory=list)
    passes: int = 0
    shown: Chains | None = None
    stopped: bool = False
    check: PrecisionCheck | None = None
    failure: MaskovError | None = None
