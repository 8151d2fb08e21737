"""No workers: the process carries out the tasks itself."""

from __future__ import annotations

from maskov.runs.task import Task, TaskResult
from maskov.runs.task_runner import TaskRunner
from maskov.runs.worker_pool import WorkerPool


class Local(WorkerPool):
    """Carries out each task at once."""

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner
        self._task: Task | None = None

    @property
    def free(self) -> int:
        """One, unless a task was given."""
        return int(self._task is None)

    @property
    def passes(self) -> int:
        """The passes of the scorer."""
        return self._runner.scorer.passes

    def give(self, task: Task) -> None:
        """Remember it."""
        self._task = task

    def take(self) -> TaskResult:
        """Carry out the task now."""
        assert self._task is not None
        task, self._task = self._task, None
        return self._runner.carry_out(task)

    def task_seconds(self, checkpoint_every: float) -> float:
        """Nothing is sent over: a task lasts until its checkpoint is due."""
        return checkpoint_every

    def close(self) -> None:
        """There is nothing to end."""
