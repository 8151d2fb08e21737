"""The one interface between a run's coordinator and the workers that carry out its tasks.

Tasks are stateless: a task that was lost with its worker is given to another, with the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from maskov.runs.task import Task, TaskResult

# A task is sent over and back, so it should last a while; its work is lost with its worker, so it
# should be shorter than the time between checkpoints.
_SHORTEST, _SHARE = 1.0, 1 / 3


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
