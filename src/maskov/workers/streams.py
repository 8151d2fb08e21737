"""No workers: the process carries out the tasks itself, one after the other or in threads.

Several groups on one GPU: while the host of one prepares its next step, another's passes run.

Chains in lock-step leave a GPU idle whenever the host has to know what a step came to. With two
groups in two threads, each on a CUDA stream of its own, there is always something to run. Groups
share nothing but the weights, so that each has the chains it would have alone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

import torch

from maskov.errors import Interrupted
from maskov.runs.task import Task, TaskResult, WorkerPool
from maskov.runs.task_runner import TaskRunner

# More threads wait for Python's lock rather than for the GPU.
THREADS = 2


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


class Streams(WorkerPool):
    """Carries out tasks in threads, one runner and one CUDA stream each."""

    def __init__(self, runners: Sequence[TaskRunner]) -> None:
        self._runners = list(runners)
        self._idle = list(range(len(self._runners)))
        self._done: queue.Queue[tuple[int, TaskResult | BaseException]] = queue.Queue()
        self._streams = [
            torch.cuda.Stream() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
            for _ in self._runners
        ]
        # The first task runs alone, so that kernels are compiled and weights laid out once.
        self._warm = False

    @property
    def free(self) -> int:
        """As many as there are idle threads; one, until the first task is done."""
        return len(self._idle) if self._warm else int(len(self._idle) == len(self._runners))

    @property
    def passes(self) -> int:
        """The passes of all scorers."""
        return sum(runner.scorer.passes for runner in self._runners)

    def give(self, task: Task) -> None:
        """Begin the task in an idle thread."""
        number = self._idle.pop()
        threading.Thread(target=self._work, args=(number, task), daemon=True).start()

    def _work(self, number: int, task: Task) -> None:
        result: TaskResult | BaseException
        try:
            stream = self._streams[number]
            with torch.cuda.stream(stream):
                result = self._runners[number].carry_out(task)
                if stream is not None:
                    stream.synchronize()
        except BaseException as error:  # handed to the thread that waits
            result = error
        self._done.put((number, result))

    def take(self) -> TaskResult:
        """Wait for a task to end."""
        number, result = self._done.get()
        self._idle.append(number)
        self._warm = True
        if isinstance(result, BaseException):
            raise result
        return result

    def recall(self) -> list[TaskResult]:
        """Wait for the others, which are asked to stop by the same function."""
        found = []
        while len(self._idle) < len(self._runners):
            try:
                found.append(self.take())
            except Interrupted:
                continue
        return found

    def close(self) -> None:
        """Threads end with their tasks."""
