"""Several processes on this machine, each with its own model and core or GPU.

A worker that dies is replaced, and its task given to the new one. The worker itself is
`python -m maskov.workers.processes LINE DEVICE`: it hears of the job once, then takes one task
after another until the line is cut.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from maskov.config import Manifest
from maskov.errors import MaskovError, RunError
from maskov.models.packed import PickledModel
from maskov.models.scorer import is_out_of_memory
from maskov.runs.coordinator import Pool, Task, TaskResult
from maskov.runs.manifest import kernel_of
from maskov.runs.task_runner import TaskRunner
from maskov.tuning import tuned

_STOP = b"stop"
# What workers print is not output of the command.
_STANDARD_ERROR = 2


@dataclass(frozen=True)
class Job:
    """A run's description and its model; `paths` is where modules of its parts are found."""

    manifest: Manifest
    model: PickledModel
    paths: tuple[str, ...] = field(default_factory=lambda: tuple(path for path in sys.path if path))

    def runner(self, device: torch.device, stop: Callable[[], bool] | None = None) -> TaskRunner:
        """Build the model and the kernel here, once, for one task after another."""
        if device.type == "cpu":
            torch.set_num_threads(self.manifest.config.execution.threads)
        if device.type == "cuda":
            # Kernels of our own and recorded rounds go to the current device.
            torch.cuda.set_device(device.index or 0)
        sys.path.extend(path for path in self.paths if path not in sys.path)
        model = self.model.unpack(device)
        # The process that sent this job has trusted its parts and loaded its models.
        kernel = kernel_of(self.manifest, model, trust_parts=True, allow_download=True)
        kernel = tuned(kernel, self.manifest.tuning)
        return TaskRunner(self.manifest, kernel, model, stop)


def run_task(runner: Callable[[], TaskRunner], task: Task) -> TaskResult:
    """Run a task; whatever goes wrong is sent back and told, and would come again."""
    try:
        return runner().run(task)
    except Exception as error:
        return TaskResult(task.number, task.state, failure=_sent(error))


def _sent(error: Exception) -> MaskovError:
    """Return an error that any process can read, with the traceback as a note."""
    if isinstance(error, MaskovError):
        return error
    message = " ".join(str(error).split())
    told = f"a worker failed with {type(error).__name__}" + (f": {message}" if message else "")
    if is_out_of_memory(error):
        told = f"a worker ran out of memory ({type(error).__name__}): continue with fewer --workers"
    found = RunError(f"{told.removesuffix('.')}.")
    found.add_note("".join(traceback.format_exception(error)))
    return found


@dataclass(eq=False)
class _Worker:
    """A process, the line to it, its device, and whether it knows the job."""

    process: subprocess.Popen[bytes]
    line: Connection
    device: torch.device
    has_job: bool = False

    def send(self, content: bytes) -> None:
        """Say something; one that is dead is noticed when it does not answer."""
        with suppress(OSError):
            self.line.send_bytes(content)

    def end(self) -> int:
        """Kill it, and return its exit code."""
        self.line.close()
        self.process.kill()
        return self.process.wait()


class Processes(Pool):
    """A worker for each of some devices, all begun at once when the first is needed."""

    def __init__(
        self,
        job: Job,
        devices: list[torch.device],
        seconds: float,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(len(devices), seconds, stop)
        self._job = pickle.dumps(job, protocol=5)
        # Those without a worker.
        self._devices = devices
        self._idle: list[_Worker] = []

    def _begin(self, task: Task) -> _Worker:
        """Give the task to somebody who is free."""
        self._idle += [self._new_worker(device) for device in self._devices]
        self._devices = []
        worker = self._idle.pop(0)
        if not worker.has_job:
            worker.send(self._job)
            worker.has_job = True
        worker.send(pickle.dumps(task, protocol=5))
        return worker

    def _new_worker(self, device: torch.device) -> _Worker:
        mine, theirs = socket.socketpair()
        with theirs:
            # What can be imported here can be imported there.
            paths = os.pathsep.join(path for path in sys.path if path)
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(device)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_STANDARD_ERROR,
                env=os.environ | {"PYTHONPATH": paths},
            )
        return _Worker(process, Connection(mine.detach()), device)

    def _ended(self, seconds: float) -> list[_Worker]:
        """Return those who have something to say, or will never say anything again."""
        lines: dict[Any, _Worker] = {worker.line: worker for worker in self._running}
        return [lines[line] for line in wait(list(lines), seconds)]

    def _result(self, worker: _Worker, task: Task) -> TaskResult | str:
        try:
            # These bytes come from a process that this one began.
            result: TaskResult = pickle.loads(worker.line.recv_bytes())
        except (EOFError, OSError):
            self._devices.append(worker.device)
            code = worker.end()
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            advice = "their messages, if any, are on standard error; continue without --workers"
            if code == -signal.SIGKILL:  # as a process ends where memory runs out
                advice = "there may be too little memory for so many: continue with fewer --workers"
            return f"worker after worker died ({how}); {advice}."
        self._idle.append(worker)
        return result

    def _tell_to_stop(self, worker: _Worker) -> None:
        worker.send(_STOP)

    def close(self) -> None:
        """End every process; none of them holds anything that is not here."""
        for worker in (*self._idle, *self._running):
            worker.end()
        self._idle, self._running = [], {}


def work(line: Connection, device: torch.device) -> None:
    """Be a worker until the coordinator is gone."""
    # A terminal or a scheduler signals all processes at once; the coordinator then says what to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    asked = False

    def heard() -> bytes:
        try:
            return line.recv_bytes()
        except (EOFError, OSError):
            # The coordinator is gone; nobody will ask for what was begun.
            os._exit(0)

    def stop() -> bool:
        nonlocal asked
        if not asked and line.poll():
            asked = heard() == _STOP
        return asked

    job = heard()

    @cache
    def runner() -> TaskRunner:
        described: Job = pickle.loads(job)
        return described.runner(device, stop)

    while True:
        content = heard()
        if content == _STOP:  # it came after the last task had ended
            continue
        asked = False
        answer = pickle.dumps(run_task(runner, pickle.loads(content)), protocol=5)
        try:
            line.send_bytes(answer)
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])), torch.device(sys.argv[2]))
