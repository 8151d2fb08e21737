"""Which crew a run is to have, as the user says it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from maskov.crew.base import Crew, Job
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.models.parcel import Parcel

ENGINES = ("local", "ray")
_MOST = 1024


@dataclass(frozen=True)
class Workers:
    """Where turns are taken: `count` processes here, or on a Ray cluster at `address`.

    0 is this process itself. `threads` are those of each process on a CPU; they decide how sums
    are rounded, so that a run keeps to the number it was begun with. On a cluster a turn takes
    `gpus` GPUs, and `count` 0 means as many turns at once as the cluster has room for.
    """

    count: int = 0
    engine: str = "local"
    address: str | None = None
    gpus: float = 0.0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"unknown engine '{self.engine}'; use one of {', '.join(ENGINES)}.")
        if not 0 <= self.count <= _MOST:
            raise InputError(f"--workers must be between 0 and {_MOST}, not {self.count}.")
        if self.threads is not None and not 1 <= self.threads <= _MOST:
            raise InputError(f"--threads must be between 1 and {_MOST}, not {self.threads}.")
        if self.engine != "ray" and (self.address is not None or self.gpus):
            raise InputError("--address and --gpus-per-worker are those of --engine ray.")
        if not 0 <= self.gpus <= _MOST:
            raise InputError(f"--gpus-per-worker must be 0 or more, not {self.gpus:g}.")

    @property
    def here(self) -> bool:
        """Whether this process takes all turns itself."""
        return self.engine == "local" and self.count == 0

    def threads_for(self, device: torch.device) -> int:
        """Return the threads of each process of a run that begins."""
        if self.threads is not None:
            return self.threads
        return torch.get_num_threads() if self.here or device.type != "cpu" else 1


def crew_for(
    workers: Workers,
    manifest: dict[str, Any],
    model: MaskedModel,
    stop: Callable[[], bool] | None,
) -> Crew:
    """Return the workers of a run."""
    job = Job(manifest, Parcel.of(model))
    if workers.engine == "ray":
        from maskov.crew.cluster import Cluster

        return Cluster(job, workers, model.device, stop)
    from maskov.crew.processes import Processes

    return Processes(job, devices_of(model.device, workers.count), stop)


def devices_of(device: torch.device, count: int) -> list[torch.device]:
    """Return the device of each worker: all GPUs in turn, from the model's on."""
    if device.type != "cuda":
        return [device] * count
    first, here = device.index or 0, torch.cuda.device_count()
    return [torch.device("cuda", (first + number) % here) for number in range(count)]
