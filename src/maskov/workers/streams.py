"""Several groups on one GPU: while the host of one prepares its next step, another's passes run.

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
from maskov.runs.task import Task, TaskResult
from maskov.runs.task_runner import TaskRunner
from maskov.runs.worker_pool import WorkerPool

# More threads wait for Python's lock rather than for the GPU.
THREADS = 2


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
