"""Find a crew for a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from maskov.models.base import MaskedModel
from maskov.models.serialization import PackedModel
from maskov.workers.base import Crew, Job
from maskov.workers.options import Workers


def crew_for(
    workers: Workers,
    manifest: dict[str, Any],
    model: MaskedModel,
    groups: int,
    stop: Callable[[], bool] | None,
) -> Crew:
    """Return the workers of a run; here no more of them than there are groups."""
    job = Job(manifest, PackedModel.of(model))
    if workers.engine == "ray":
        from maskov.workers.ray import Cluster

        return Cluster(job, workers, model.device, stop)
    from maskov.workers.processes import Processes

    return Processes(job, devices_of(model.device, min(workers.count, groups)), stop)


def devices_of(device: torch.device, count: int) -> list[torch.device]:
    """Return the device of each worker: all GPUs in turn, from the model's on."""
    if device.type != "cuda":
        return [device] * count
    first, here = device.index or 0, torch.cuda.device_count()
    return [torch.device("cuda", (first + number) % here) for number in range(count)]
