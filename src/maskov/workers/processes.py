"""Several processes on this machine, each with the model and a core or a GPU of its own.

A worker that dies is replaced, and its task given to the new one.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from maskov.errors import Interrupted, RunError
from maskov.runs.task import Task, TaskResult
from maskov.runs.worker_pool import WorkerPool
from maskov.workers.job import MOST_DEATHS, Job
from maskov.workers.serialization import result_from, to_bytes

# How often a wait looks whether somebody asked to stop.
_LOOK = 0.1
# Workers that were asked to stop have so long to say how far they came, in seconds.
_PATIENCE = 60.0


@dataclass
class _Worker:
    """A process, the line to it and the task it is at."""

    process: subprocess.Popen[bytes]
    line: Connection
    device: torch.device
    has_job: bool = False
    task: Task | None = None
    deaths: int = 0


class Processes(WorkerPool):
    """A worker for each of some devices, all begun at once when the first is needed."""

    def __init__(
        self,
        job: Job,
        devices: list[torch.device],
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
    ) -> None:
        self._job = pickle.dumps(job, protocol=5)
        self._devices = devices
        self._seconds = seconds
        self._stop = stop
        self._workers: list[_Worker] = []
        self._passes = 0

    @property
    def free(self) -> int:
        """Workers without a task, begun or not."""
        busy = sum(worker.task is not None for worker in self._workers)
        return len(self._devices) - busy

    @property
    def passes(self) -> int:
        """The passes of all tasks that have ended."""
        return self._passes

    @property
    def pids(self) -> list[int]:
        """The processes, in the order they were begun."""
        return [worker.process.pid for worker in self._workers]

    def give(self, task: Task) -> None:
        """Give the task to somebody who is free."""
        if not self._workers:
            self._workers = [self._begin(device) for device in self._devices]
        worker = next(one for one in self._workers if one.task is None)
        worker.task = task
        self._send(worker)

    def take(self) -> TaskResult:
        """Wait for the first that is done; replace those who died."""
        while True:
            if self._stop is not None and self._stop():
                raise Interrupted("asked to stop")
            for worker in self._heard(_LOOK):
                result = self._answer(worker)
                if result is not None:
                    return result
                self._replace(worker)

    def recall(self) -> list[TaskResult]:
        """Ask all to stop; whoever does not answer has done nothing."""
        found = []
        busy = [worker for worker in self._workers if worker.task is not None]
        for worker in busy:
            try:
                worker.line.send_bytes(b"stop")
            except OSError:
                worker.task = None
        while any(worker.task is not None for worker in busy):
            heard = self._heard(_PATIENCE)
            if not heard:
                break
            for worker in heard:
                result = self._answer(worker)
                worker.task = None
                if result is not None:
                    found.append(result)
        return found

    def task_seconds(self, checkpoint_every: float) -> float:
        """Return the seconds of a task, if they were given."""
        return self._seconds or super().task_seconds(checkpoint_every)

    def close(self) -> None:
        """End every process; none of them holds anything that is not here."""
        for worker in self._workers:
            worker.line.close()
            worker.process.kill()
            worker.process.wait()
        self._workers = []

    def _heard(self, seconds: float) -> list[_Worker]:
        """Return those who have something to say, or will never say anything again."""
        busy: dict[Any, _Worker] = {
            worker.line: worker for worker in self._workers if worker.task is not None
        }
        return [busy[line] for line in wait(list(busy), seconds)]

    def _answer(self, worker: _Worker) -> TaskResult | None:
        """Return what a worker says, or nothing if it died."""
        try:
            result = result_from(worker.line.recv_bytes())
        except (EOFError, OSError):
            return None
        worker.task, worker.deaths = None, 0
        self._passes += result.passes
        return result

    def _replace(self, worker: _Worker) -> None:
        worker.line.close()
        worker.process.kill()
        code = worker.process.wait()
        worker.deaths += 1
        if worker.deaths >= MOST_DEATHS:
            raise RunError(f"worker after worker died ({_how(code)}); {_advice(code)}.")
        new = self._begin(worker.device)
        worker.process, worker.line, worker.has_job = new.process, new.line, False
        self._send(worker)

    def _begin(self, device: torch.device) -> _Worker:
        mine, theirs = socket.socketpair()
        with theirs:
            # What can be imported here can be imported there.
            paths = os.pathsep.join(path for path in sys.path if path)
            process = subprocess.Popen(
                [sys.executable, "-m", "maskov.workers.worker", str(theirs.fileno()), str(device)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if _has_number(sys.stderr) else subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": paths},
            )
        return _Worker(process, Connection(mine.detach()), device)

    def _send(self, worker: _Worker) -> None:
        assert worker.task is not None
        with suppress(OSError):  # one that is dead is noticed when it does not answer
            if not worker.has_job:
                worker.line.send_bytes(self._job)
                worker.has_job = True
            worker.line.send_bytes(to_bytes(worker.task))


def _has_number(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False


def _advice(code: int) -> str:
    # The kernel kills a process where memory runs out, with the signal that cannot be caught.
    if code == -signal.SIGKILL:
        return "there may be too little memory for so many: continue with fewer --workers"
    return "their messages, if any, are on standard error; continue without --workers"


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
