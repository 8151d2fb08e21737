"""The workers of a run: this process, several on this machine, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from maskov.config import Manifest
from maskov.models.base import MaskedModel
from maskov.models.serialization import PackedModel
from maskov.runs.worker_pool import WorkerPool
from maskov.workers.job import Job
from maskov.workers.options import Workers
from maskov.workers.processes import Processes
from maskov.workers.ray import Cluster

# Arithmetic of a core in a second, about, and the seconds that make up for starting processes.
_CORE_FLOPS, _WORTH_SECONDS = 1e11, 12.0
# Seconds of a task of automatic workers, after which the terminal shows their chains again.
_TASK_SECONDS = 1.0
# The share of proposals that differ, and of their passes that are run, to plan by.
_NOVEL, _RUN_PASSES = 0.4, 0.5


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
    job = Job(manifest, PackedModel.of(model))
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
