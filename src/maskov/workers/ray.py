"""A Ray cluster: every task of a run is a Ray task that any node can carry out, and again.

The model goes to the cluster's store once, is built once by each of its processes, and is found
there by the tasks that follow. A task that was lost with its process or node is submitted anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import torch

from maskov.errors import InputError
from maskov.runs.coordinator import Pool, Task, TaskResult
from maskov.runs.task_runner import TaskRunner
from maskov.workers import Workers
from maskov.workers.processes import Job, run_task

# Ray itself tries a task again so many times.
_RETRIES = 4
# The runner that this process of the cluster has built; one is enough, since runs do not mix.
_built: dict[str, TaskRunner] = {}


def carry_out(name: str, job: Job, device: str, task: Task) -> TaskResult:
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
        self._ray = _ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._connect(workers)
        gpus = workers.gpus_per_worker or float(device.type == "cuda")
        cpus = job.manifest.config.execution.threads if device.type == "cpu" else 1
        super().__init__(workers.count or self._room(cpus, gpus), seconds, stop)
        # A GPU is lent to a task as the only one it can see.
        self._device = "cuda" if gpus else str(device)
        self._name = uuid.uuid4().hex
        self._job = self._ray.put(job)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": _RETRIES}
        self._remote = self._ray.remote(**options)(carry_out)

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

    def _begin(self, task: Task) -> Any:
        return self._remote.remote(self._name, self._job, self._device, task)

    def _ended(self, seconds: float) -> list[Any]:
        done: list[Any] = self._ray.wait(list(self._running), timeout=seconds)[0]
        return done

    def _result(self, one: Any, task: Task) -> TaskResult | str:
        try:
            found: TaskResult = self._ray.get(one)
        except self._ray.exceptions.RayTaskError:
            raise  # a fault in our own code, which would come again
        except self._ray.exceptions.RayError as error:
            return (
                f"group {task.number} was lost again and again ({type(error).__name__}); see to "
                "the cluster's nodes and go on with `maskov resume`."
            )
        return found

    def close(self) -> None:
        """Drop what is still under way; leave a cluster as it was found."""
        for one in self._running:
            self._ray.cancel(one, force=True)
        self._running = {}
        if self._ours:
            self._ray.shutdown()


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("--workers ray needs Ray: pip install '.[ray]'.") from error
    return ray
