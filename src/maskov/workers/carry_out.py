"""Take a run to its end: in this process, in threads that share a GPU, or by workers."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from maskov.config import Manifest
from maskov.execution.loop import kernel_at
from maskov.execution.recorded_gibbs import records_gibbs
from maskov.kernels import Kernel
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.models.serialization import PickledModel
from maskov.runs.async_group import sampler_for
from maskov.runs.coordinator import Coordinator
from maskov.runs.preparation import threads
from maskov.runs.task import WorkerPool
from maskov.runs.task_runner import TaskRunner
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.workers.job import Job
from maskov.workers.options import Workers
from maskov.workers.processes import Processes
from maskov.workers.ray import Cluster
from maskov.workers.streams import THREADS, Local, Streams

# Fewer chains than these are not worth a group of their own.
_FEWEST_TAKING_TURNS = 64
# Arithmetic of a core in a second, about, and the seconds that make up for starting processes.
_CORE_FLOPS, _WORTH_SECONDS = 1e11, 12.0
# Seconds of a task of automatic workers, after which the terminal shows their chains again.
_TASK_SECONDS = 1.0
# The share of proposals that differ, and of their passes that are run, to plan by.
_NOVEL, _RUN_PASSES = 0.4, 0.5


def carry_out(coordinator: Coordinator, workers: Workers, stop: Callable[[], bool] | None) -> None:
    """Take a run to its end, in this process or by workers."""
    manifest, model, listener = coordinator.manifest, coordinator.model, coordinator.listener
    execution, groups = manifest.config.execution, len(coordinator.groups)
    several = workers.count is None and automatic_count(manifest, model, groups)
    if not workers.here or several:
        if groups < (workers.count or 0) and listener is not None:
            listener.noted(
                f"{manifest.chains} chains are {groups} groups of at most {execution.resident}, "
                "which keep as many workers busy; a smaller --resident makes more of them"
            )
        with pool_for(workers, manifest, model, groups, stop) as pool:
            coordinator.run(pool)
        return
    if groups > 1 and _shares_gpu(coordinator.kernel, manifest, model):
        runners = [TaskRunner.of(manifest, coordinator.kernel, model, stop) for _ in range(THREADS)]
        with Streams(runners) as streams:
            coordinator.run(streams)
        return
    runner = TaskRunner.of(manifest, coordinator.kernel, model, stop)
    runner.deliver = coordinator.deliver
    if listener is not None:
        runner.watch = coordinator.show
    with threads(execution.threads, model):
        coordinator.run(Local(runner))


def group_size(scorer: Scorer, kernel: Kernel, schedule: Schedule, layout: Layout) -> int:
    """Return how many chains make a group; on a GPU two groups in lock-step take turns."""
    chains = len(layout.tokens)
    # Epochs that accept everything come first, and those of a burn-in with another energy.
    first, moving = (kernel_at(kernel, schedule, e) for e in (0, schedule.epochs - 1))
    in_rounds = (sampler_for(scorer.model, one) is not None for one in (first, moving))
    most = scorer.resident(layout.width, layout.mean, lock_step=not all(in_rounds))
    if scorer.model.device.type != "cuda" or _records(scorer.model, moving):
        return most
    return min(most, max(_FEWEST_TAKING_TURNS, -(-chains // THREADS)))


def _shares_gpu(kernel: Kernel, manifest: Manifest, model: MaskedModel) -> bool:
    """Whether groups should take turns on one GPU: those in lock-step leave it idle."""
    if model.device.type != "cuda":
        return False
    each = (kernel_at(kernel, manifest.schedule, e) for e in range(manifest.schedule.epochs))
    # Rounds that are recorded fill the device, and must be recorded alone.
    return not any(_records(model, one) for one in each)


def _records(model: MaskedModel, kernel: Kernel) -> bool:
    """Whether chains go on in rounds or steps that are recorded on a GPU."""
    return sampler_for(model, kernel) is not None or records_gibbs(kernel, model)


def automatic_count(manifest: Manifest, model: MaskedModel, groups: int) -> int:
    """Return how many processes a run on a CPU is worth; 0 is this process alone.

    It decides how long a run takes, and never its samples.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    network = getattr(model, "network", None)
    count = min(cores or 1, groups)
    if model.device.type != "cpu" or network is None or count < 2:
        return 0
    if manifest.config.kernel.get("unnamed") or manifest.config.execution.threads > 1:
        return 0
    length = (manifest.width + manifest.shortest) / 2
    passes = manifest.chains * manifest.schedule.epochs * length * _NOVEL * length * _RUN_PASSES
    passes *= manifest.replicas
    weights = sum(parameter.numel() for parameter in network.parameters())
    return count if passes * length * 2 * weights > _CORE_FLOPS * _WORTH_SECONDS else 0


def pool_for(
    workers: Workers,
    manifest: Manifest,
    model: MaskedModel,
    groups: int,
    stop: Callable[[], bool] | None,
) -> WorkerPool:
    """Return the workers of a run; on this machine no more of them than there are groups."""
    job = Job(manifest, PickledModel.of(model))
    if workers.engine == "ray":
        return Cluster(job, workers, model.device, stop)
    automatic = workers.count is None
    count = automatic_count(manifest, model, groups) if workers.count is None else workers.count
    devices = devices_of(model.device, min(count, groups))
    return Processes(job, devices, stop, _TASK_SECONDS if automatic else None)


def devices_of(device: torch.device, count: int) -> list[torch.device]:
    """Return the device of each worker: all GPUs in turn, from the model's on."""
    if device.type != "cuda":
        return [device] * count
    first, here = device.index or 0, torch.cuda.device_count()
    return [torch.device("cuda", (first + number) % here) for number in range(count)]
