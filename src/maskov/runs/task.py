"""Tasks, and the pools that run them.

A task is a numbered piece of work with a saved state: it starts from the state and ends, at a point
that it or somebody else chooses, with the next state and what was completed on the way. The same
state leads to the same results wherever and however often it is run. So a task can be stopped and
resumed, and one that was lost with its worker is given to another. A state is anything that can be
pickled; a pool does not look into it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from maskov.config import PrecisionCheck
from maskov.errors import Interrupted, MaskovError, RunError
from maskov.types import Chains, Traces

# How often a wait looks whether somebody asked to stop, in seconds.
_LOOK = 0.1
# A task that was lost with its worker so many times in a row is not given to another.
_MOST_LOSSES = 4


class TaskOver(Exception):  # noqa: N818 - not a fault
    """The task has lasted long enough."""


@dataclass(frozen=True)
class Task:
    """Take a `state` on, to the epoch `until` or for so many `seconds`.

    Where the task ends decides nothing but when it is over. `number` is that of a group of chains;
    one that has not begun is only filled.
    """

    number: int
    state: Any
    until: int
    seconds: float


@dataclass(frozen=True)
class TaskResult:
    """The new state and the rows of the epochs that a task completed.

    `passes` are those it took, `shown` a few chains to look at, `stopped` says that it was cut
    short because somebody asked to stop, `failure` that the model broke down: the state is then the
    one that its task began with. `check` is what a coarser precision does to energies, measured
    where the first group begins.
    """

    number: int
    state: Any
    rows: list[tuple[int, Traces]] = field(default_factory=list)
    passes: int = 0
    shown: Chains | None = None
    stopped: bool = False
    check: PrecisionCheck | None = None
    failure: MaskovError | None = None


class Pool(ABC):
    """Runs tasks, `size` of them at once, each for about so many `seconds`.

    A worker that fails says so in its result. One that is lost says nothing: its task is run again,
    unless that happens again and again.
    """

    # Workers that were asked to stop have so long to say how far they came, in seconds.
    patience = 60.0

    def __init__(self, size: int, seconds: float, stop: Callable[[], bool] | None = None) -> None:
        self.size = size
        self.seconds = seconds
        self._asked_to_stop = stop or (lambda: False)
        self._passes = 0
        # Tasks that were begun, by whatever tells them apart.
        self._running: dict[Any, Task] = {}
        self._losses = Counter[int]()

    @property
    def free(self) -> int:
        """How many tasks could be submitted now."""
        return self.size - len(self._running)

    @property
    def passes(self) -> int:
        """The masked passes of all tasks so far."""
        return self._passes

    def submit(self, task: Task) -> None:
        """Begin a task; there must be a free place."""
        self._running[self._begin(task)] = task

    def next(self) -> TaskResult:
        """Wait for a task to end; raise `Interrupted` when asked to stop in the meantime."""
        while True:
            if self._asked_to_stop():
                raise Interrupted("asked to stop")
            for one in self._ended(_LOOK):
                task = self._running.pop(one)
                result = self._result(one, task)
                if isinstance(result, TaskResult):
                    del self._losses[task.number]
                    self._passes += result.passes
                    return result
                self._losses[task.number] += 1
                if self._losses[task.number] >= _MOST_LOSSES:
                    raise RunError(result)
                self.submit(task)

    def stop(self) -> list[TaskResult]:
        """Ask all workers to stop, and return what they have done, if they can say."""
        for one in self._running:
            self._tell_to_stop(one)
        found = []
        while self._running and (ended := self._ended(self.patience)):
            for one in ended:
                result = self._result(one, self._running.pop(one))
                if isinstance(result, TaskResult):
                    found.append(result)
        return found

    @abstractmethod
    def _begin(self, task: Task) -> Any:
        """Begin a task; return what tells it apart."""

    @abstractmethod
    def _ended(self, seconds: float) -> Collection[Any]:
        """Wait for so long at most; return those running tasks that have ended."""

    @abstractmethod
    def _result(self, one: Any, task: Task) -> TaskResult | str:
        """Return the result of a task that has ended, or a sentence that says how it was lost."""

    def _tell_to_stop(self, one: Any) -> None:  # noqa: B027 - some know by themselves
        """Ask the worker of a task to stop, unless it knows by itself."""

    @abstractmethod
    def close(self) -> None:
        """End all workers."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
