"""Take a run to its end: in this process, in threads that share a GPU, or by workers.

Workers are processes on this machine, each with its own model and core or GPU, or a Ray cluster. A
process that dies is replaced, and its task given to the new one. It is
`python -m maskov.workers.pools LINE DEVICE`: it hears of the job once, then takes one task after
another until the line is cut.

On a Ray cluster every task of a run is a Ray task that any node can carry out, and again. The model
goes to the cluster's store once, is built once by each of its processes, and is found there by the
tasks that follow. A task that was lost with its process or node is submitted anew.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait as wait_for_lines
from typing import Any

import torch

from maskov.config import Manifest, Schedule
from maskov.errors import InputError, MaskovError, RunError, refuse, refusing
from maskov.execution.population_rounds import population_sampler
from maskov.execution.recorded import sampler_for
from maskov.execution.recorded_gibbs import records_gibbs
from maskov.kernels import Kernel
from maskov.kernels.base import kernel_at
from maskov.models import MaskedModel
from maskov.models.packed import PickledModel
from maskov.models.scorer import Scorer, is_out_of_memory
from maskov.runs.coordinator import Coordinator, Pool, Silent, Task, TaskResult
from maskov.runs.manifest import kernel_of
from maskov.runs.preparation import threads
from maskov.runs.task_runner import TaskRunner
from maskov.starts import Layout
from maskov.tuning import tuned
from maskov.workers import Workers

# More threads wait for Python's lock rather than for the GPU.
_THREADS = 2
# Fewer chains than these are not worth a separate group.
_FEWEST_TAKING_TURNS = 64
# On a CPU products of fewer rows than these tokens wait for the weights.
_FEWEST_TOKENS = 80
# Arithmetic of a core in a second, about, and the seconds that make up for starting processes.
_CORE_FLOPS, _WORTH_SECONDS = 1e11, 12.0
# A task is sent over and back, so it should last a while; its work is lost with its worker, so it
# should be shorter than the time between checkpoints. The terminal shows the chains of automatic
# workers again after each task.
_SHORTEST, _SHARE = 1.0, 1 / 3
# The share of proposals that differ, and of their passes that are run, to plan by.
_NOVEL, _RUN_PASSES = 0.4, 0.5
# Ray itself tries a task again so many times.
_RETRIES = 4
# The runner that this process of the cluster has built; one is enough, since runs do not mix.
_built: dict[str, TaskRunner] = {}
_STOP = b"stop"
# What workers print is not output of the command.
_STANDARD_ERROR = 2


class Local(Pool):
    """Runs each task at once, in this process."""

    def __init__(self, runner: TaskRunner, seconds: float) -> None:
        super().__init__(1, seconds)
        self._runner = runner

    @property
    def passes(self) -> int:
        """The passes of the scorer, also of the task under way."""
        return self._runner.scorer.passes

    def _begin(self, task: Task) -> int:
        return task.number

    def _ended(self, seconds: float) -> Collection[int]:
        return list(self._running)

    def _result(self, one: int, task: Task) -> TaskResult:
        return self._runner.run(task)


class Threads(Pool):
    """Runs tasks in threads, one runner and one CUDA stream each: groups that share a GPU.

    Chains in lock-step leave a GPU idle whenever the host has to know what a step came to. With two
    groups in two threads there is always something to run. Groups share nothing but the weights, so
    that each has the chains it would have alone. All threads are asked to stop by the same
    function, which their runners call.
    """

    def __init__(self, runners: Sequence[TaskRunner], seconds: float) -> None:
        # The first task runs alone, so that kernels are compiled and weights laid out once.
        super().__init__(1, seconds)
        here = torch.cuda.is_available()
        streams = (torch.cuda.Stream() if here else None for _ in runners)  # type: ignore[no-untyped-call]
        self._idle = list(zip(runners, streams, strict=True))
        self._most = len(runners)
        self._threads = ThreadPoolExecutor(self._most)

    def _begin(self, task: Task) -> Future[TaskResult]:
        return self._threads.submit(self._run, task)

    def _run(self, task: Task) -> TaskResult:
        runner, stream = self._idle.pop()
        try:
            with torch.cuda.stream(stream):
                result = runner.run(task)
                if stream is not None:
                    stream.synchronize()
            return result
        finally:
            self._idle.append((runner, stream))

    def _ended(self, seconds: float) -> Collection[Future[TaskResult]]:
        return wait(self._running, seconds, FIRST_COMPLETED).done

    def _result(self, one: Future[TaskResult], task: Task) -> TaskResult:
        self.size = self._most
        return one.result()

    def close(self) -> None:
        """Threads end with their tasks."""
        self._threads.shutdown()


# Processes of this machine.


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
        return TaskRunner(self.manifest, tuned(kernel, self.manifest.tuning), model, stop)


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
        return [lines[line] for line in wait_for_lines(list(lines), seconds)]

    def _result(self, worker: _Worker, task: Task) -> TaskResult | str:
        try:
            # These bytes come from a process that this one began.
            result: TaskResult = pickle.loads(worker.line.recv_bytes())
        except (EOFError, OSError):
            self._devices.append(worker.device)
            code = worker.end()
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            advice = (
                "there may be too little memory for so many: continue with fewer --workers"
                if code == -signal.SIGKILL  # as a process ends where memory runs out
                else "their messages, if any, are on standard error; continue without --workers"
            )
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


# A cluster.


def _on_node(name: str, job: Job, device: str, task: Task) -> TaskResult:
    """Carry out a task, on a node of the cluster; `name` tells runs apart."""

    def runner() -> TaskRunner:
        if name not in _built:
            _built.clear()
            _built[name] = job.runner(torch.device(device))
        return _built[name]

    return run_task(runner, task)


class Cluster(Pool):
    """Tasks on a cluster, as many at once as it has room for or as were asked for."""

    # Tasks under way are dropped: nobody can tell them to stop.
    patience = 0.0

    def __init__(
        self,
        job: Job,
        workers: Workers,
        device: torch.device,
        seconds: float,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        with refusing("--workers ray needs Ray: pip install '.[ray]'.", ImportError):
            import ray
            import ray.exceptions
        self._ray: Any = ray
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._connect(workers)
        gpus = workers.gpus_per_worker or float(device.type == "cuda")
        cpus = job.manifest.config.execution.threads if device.type == "cpu" else 1
        there = self._ray.cluster_resources()
        room = min(there.get("CPU", 0) / cpus, there.get("GPU", 0) / gpus if gpus else math.inf)
        refuse(
            (
                not workers.count and room < 1,
                f"the Ray cluster has no node for a worker of {cpus} cores and {gpus:g} GPUs.",
            )
        )
        super().__init__(workers.count or int(room), seconds, stop)
        # A GPU is lent to a task as the only one it can see.
        self._device = "cuda" if gpus else str(device)
        self._name = uuid.uuid4().hex
        self._job = self._ray.put(job)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": _RETRIES}
        self._remote = self._ray.remote(**options)(_on_node)

    def _connect(self, workers: Workers) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        try:
            if workers.address is None:
                cores = {"num_cpus": workers.count} if workers.count else {}
                self._ray.init("local", include_dashboard=False, **cores, **quiet)
            else:
                self._ray.init(workers.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise InputError(f"cannot reach the Ray cluster: {first}") from error

    def _begin(self, task: Task) -> Any:
        return self._remote.remote(self._name, self._job, self._device, task)

    def _ended(self, seconds: float) -> list[Any]:
        return list(self._ray.wait(list(self._running), timeout=seconds)[0])

    def _result(self, one: Any, task: Task) -> TaskResult | str:
        try:
            found: TaskResult = self._ray.get(one)
        except self._ray.exceptions.RayTaskError:
            raise  # a fault in our own code, which would come again
        except self._ray.exceptions.RayError as error:
            return (
                f"group {task.number} was lost again and again ({type(error).__name__}); see to "
                "the cluster's nodes and continue with `maskov resume`."
            )
        return found

    def close(self) -> None:
        """Drop what is still under way; leave a cluster as it was found."""
        for one in self._running:
            self._ray.cancel(one, force=True)
        self._running = {}
        if self._ours:
            self._ray.shutdown()


def carry_out(coordinator: Coordinator, workers: Workers, stop: Callable[[], bool] | None) -> None:
    """Take a run to its end, in this process or by workers."""
    manifest, kernel, model = coordinator.manifest, coordinator.kernel, coordinator.model
    groups, seconds = len(coordinator.store.groups), coordinator.seconds
    share = max(seconds * _SHARE, _SHORTEST)
    count = workers.count or 0
    if workers.count is None and workers.engine == "local":
        count, share = automatic_count(manifest, model, groups), _SHORTEST
    if count or workers.engine == "ray":
        if groups < (workers.count or 0):
            coordinator.listener.noted(
                f"{manifest.chains} chains are {groups} groups of at most "
                f"{manifest.config.execution.resident}, which keep as many workers busy; a smaller "
                "--resident makes more of them"
            )
        pool = pool_for(workers, count, manifest, model, groups, share, stop)
    elif groups > 1 and _shares_gpu(kernel, manifest, model):
        pool = Threads([TaskRunner(manifest, kernel, model, stop) for _ in range(_THREADS)], share)
    else:
        runner = TaskRunner(manifest, kernel, model, stop)
        runner.deliver = coordinator.deliver
        if type(coordinator.listener) is not Silent:
            runner.watch = coordinator.show
        pool = Local(runner, seconds)
    with closing(pool), threads(manifest.config.execution.threads, model):
        coordinator.run(pool)


def pool_for(
    workers: Workers,
    count: int,
    manifest: Manifest,
    model: MaskedModel,
    groups: int,
    seconds: float,
    stop: Callable[[], bool] | None,
) -> Pool:
    """Return the workers of a run; on this machine no more of them than there are groups."""
    job = Job(manifest, PickledModel.of(model))
    if workers.engine == "ray":
        return Cluster(job, workers, model.device, seconds, stop)
    return Processes(job, devices_of(model.device, min(count, groups)), seconds, stop)


def group_size(scorer: Scorer, kernel: Kernel, schedule: Schedule, layout: Layout) -> int:
    """Return how many chains make a group: as many as fill a batch.

    On a CPU each core has a group of a long run, if that is not too small; on a GPU two groups in
    lock-step take turns. The workers of a run decide nothing.
    """
    chains, model = len(layout.starts), scorer.model
    if kernel.particles:
        if population_sampler(model, kernel) is None:
            return kernel.particles
        # In rounds as many populations as fill a batch go together.
        together = scorer.resident(layout.width, layout.mean) // kernel.particles
        return kernel.particles * max(1, together)
    # Epochs that accept everything come first, and those of a burn-in with another energy.
    first, moving = (kernel_at(kernel, schedule, e) for e in (0, schedule.epochs - 1))
    in_rounds = (sampler_for(model, one) is not None for one in (first, moving))
    most = scorer.resident(layout.width, layout.mean, lock_step=not all(in_rounds))
    if _is_long(model, chains, schedule.epochs, (layout.width + layout.shortest) / 2):
        groups = max(1, min(_cores(), chains * layout.mean // _FEWEST_TOKENS))
        return min(most, -(-chains // groups))
    if model.device.type != "cuda" or _records(model, moving):
        return most
    return min(most, max(_FEWEST_TAKING_TURNS, -(-chains // _THREADS)))


def _shares_gpu(kernel: Kernel, manifest: Manifest, model: MaskedModel) -> bool:
    """Whether groups should take turns on one GPU: those in lock-step leave it idle."""
    if model.device.type != "cuda":
        return False
    each = (kernel_at(kernel, manifest.schedule, e) for e in range(manifest.schedule.epochs))
    # Rounds that are recorded fill the device, and must be recorded alone.
    return not any(_records(model, one) for one in each)


def _records(model: MaskedModel, kernel: Kernel) -> bool:
    """Whether chains continue in rounds or steps that are recorded on a GPU."""
    kinds = (sampler_for(model, kernel), population_sampler(model, kernel))
    return any(kind is not None for kind in kinds) or records_gibbs(kernel, model)


def automatic_count(manifest: Manifest, model: MaskedModel, groups: int) -> int:
    """Return how many processes a run on a CPU is worth; 0 is this process alone.

    It decides how long a run takes, and never its samples.
    """
    count = min(_cores(), groups)
    if manifest.config.kernel.get("unnamed") or manifest.config.execution.threads > 1 or count < 2:
        return 0
    length, epochs = (manifest.width + manifest.shortest) / 2, manifest.schedule.epochs
    return count if _is_long(model, manifest.chains, epochs, length) else 0


def _cores() -> int:
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def _is_long(model: MaskedModel, chains: int, epochs: int, length: float) -> bool:
    """Whether a run on a CPU lasts long enough to make up for starting processes."""
    network = getattr(model, "network", None)
    if model.device.type != "cpu" or network is None:
        return False
    passes = chains * epochs * length * _NOVEL * length * _RUN_PASSES
    weights = int(sum(parameter.numel() for parameter in network.parameters()))
    return passes * length * 2 * weights > _CORE_FLOPS * _WORTH_SECONDS


def devices_of(device: torch.device, count: int) -> list[torch.device]:
    """Return the device of each worker: all GPUs in turn, from the model's on."""
    if device.type != "cuda":
        return [device] * count
    first, here = device.index or 0, torch.cuda.device_count()
    return [torch.device("cuda", (first + number) % here) for number in range(count)]


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])), torch.device(sys.argv[2]))
