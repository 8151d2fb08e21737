"""A Ray cluster: every task of a run is a Ray task that any node can carry out, and again.

The model goes to the cluster's store once, is built once by each of its processes, and is found
there by the tasks that follow. A task that was lost with its process or node is submitted anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import torch

from maskov.errors import InputError, Interrupted, RunError
from maskov.runs.task import Task, TaskResult, WorkerPool
from maskov.runs.task_runner import TaskRunner
from maskov.workers.job import MOST_DEATHS, Job, carried_out, result_from, task_from, to_bytes
from maskov.workers.options import Workers

_LOOK = 0.1
# The runner that this process of the cluster has built; one is enough, since runs do not mix.
_built: dict[str, TaskRunner] = {}


def carry_out(name: str, job: Job, device: str, content: bytes) -> bytes:
    """Carry out a task, on a node of the cluster; `name` tells runs apart."""

    def runner() -> TaskRunner:
        if name not in _built:
            _built.clear()
            _built[name] = job.runner(torch.device(device))
        return _built[name]

    return to_bytes(carried_out(runner, task_from(content)))


class Cluster(WorkerPool):
    """Tasks on a cluster, as many at once as it has room for or as were asked for."""

    def __init__(
        self,
        job: Job,
        workers: Workers,
        device: torch.device,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._ray = _ray()
        self._stop = stop
        self._passes = 0
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._connect(workers)
        gpus = workers.gpus_per_worker or float(device.type == "cuda")
        cpus = job.manifest.config.execution.threads if device.type == "cpu" else 1
        self._most = workers.count or self._room(cpus, gpus)
        # A GPU is lent to a task as the only one it can see.
        self._device = "cuda" if gpus else str(device)
        self._name = uuid.uuid4().hex
        self._job = self._ray.put(job)
        self._remote = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=MOST_DEATHS)(
            carry_out
        )
        self._at_work: dict[Any, Task] = {}
        self._deaths: dict[int, int] = {}

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

    def _room(self, cpus: int, gpus: float) -> int:
        """Return how many tasks the cluster can run at once."""
        there = self._ray.cluster_resources()
        fit = there.get("CPU", 0) / cpus
        if gpus:
            fit = min(fit, there.get("GPU", 0) / gpus)
        if fit < 1:
            raise InputError(
                f"the Ray cluster has no node for a worker of {cpus} cores and {gpus:g} GPUs."
            )
        return int(fit)

    @property
    def free(self) -> int:
        """Places for further tasks."""
        return self._most - len(self._at_work)

    @property
    def passes(self) -> int:
        """The passes of all tasks that have ended."""
        return self._passes

    def give(self, task: Task) -> None:
        """Submit a task."""
        found = self._remote.remote(self._name, self._job, self._device, to_bytes(task))
        self._at_work[found] = task

    def take(self) -> TaskResult:
        """Wait for the first task that is done; submit anew what was lost."""
        while True:
            if self._stop is not None and self._stop():
                raise Interrupted("asked to stop")
            done, _ = self._ray.wait(list(self._at_work), timeout=_LOOK)
            for found in done:
                result = self._answer(found)
                if result is not None:
                    return result

    def _answer(self, found: Any) -> TaskResult | None:
        task = self._at_work.pop(found)
        try:
            result = result_from(self._ray.get(found))
        except self._ray.exceptions.RayTaskError:
            raise  # a fault in our own code, which would come again
        except self._ray.exceptions.RayError as error:
            self._deaths[task.group] = self._deaths.get(task.group, 0) + 1
            if self._deaths[task.group] >= MOST_DEATHS:
                raise RunError(
                    f"group {task.group} was lost again and again ({type(error).__name__}); see "
                    "to the cluster's nodes and go on with `maskov resume`."
                ) from error
            self.give(task)
            return None
        self._deaths.pop(task.group, None)
        self._passes += result.passes
        return result

    def close(self) -> None:
        """Drop what is still under way; leave a cluster as it was found."""
        for found in self._at_work:
            self._ray.cancel(found, force=True)
        self._at_work = {}
        if self._ours:
            self._ray.shutdown()


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("--workers ray needs Ray: pip install '.[ray]'.") from error
    return ray
