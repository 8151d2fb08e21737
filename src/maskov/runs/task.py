"""A task: one group of chains goes on from where it stands to a later point.

A task is all that a worker needs to know beside the run itself. It can be carried out anywhere, and
again: the same state leads to the same chains. So a task that was lost with its worker is given to
another, with the same result; `WorkerPool` is the one interface between a run's coordinator and the
workers that carry out its tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from maskov.config import PrecisionCheck
from maskov.errors import MaskovError
from maskov.runs.group import GroupState
from maskov.types import Chains, Traces

# A task is sent over and back, so it should last a while; its work is lost with its worker, so it
# should be shorter than the time between checkpoints.
_SHORTEST, _SHARE = 1.0, 1 / 3


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


class WorkerPool(ABC):
    """Carries out tasks, several at once where there are several workers."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many tasks could be begun now."""

    @property
    @abstractmethod
    def passes(self) -> int:
        """The masked passes of all tasks so far."""

    @abstractmethod
    def give(self, task: Task) -> None:
        """Begin a task; there must be a free place."""

    @abstractmethod
    def take(self) -> TaskResult:
        """Wait for a task to end; raise `Interrupted` when asked to stop in the meantime."""

    def recall(self) -> list[TaskResult]:
        """Ask all workers to stop, and return what they have done, if they can say."""
        return []

    def task_seconds(self, checkpoint_every: float) -> float:
        """Return how long one task should last."""
        return max(checkpoint_every * _SHARE, _SHORTEST)

    @abstractmethod
    def close(self) -> None:
        """End all workers."""

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
