"""The workers of a run: this process, several on this machine, or a Ray cluster."""

from __future__ import annotations

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
    return Processes(job, devices_of(model.device, min(workers.count, groups)), stop)


def devices_of(device: torch.device, count: int) -> list[torch.device]:
    """Return the device of each worker: all GPUs in turn, from the model's on."""
    if device.type != "cuda":
        return [device] * count
    first, here = device.index or 0, torch.cuda.device_count()
    return [torch.device("cuda", (first + number) % here) for number in range(count)]
