"""All that a worker must know of a run, and which workers a run gets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from maskov.config import Manifest
from maskov.models.serialization import PackedModel
from maskov.runs.rebuild import kernel_of
from maskov.runs.task_runner import TaskRunner
from maskov.tuning.tune import tuned

# A task that ends its worker so many times in a row is not given to another.
MOST_DEATHS = 4


@dataclass(frozen=True)
class Job:
    """A run's description and its model; `paths` is where modules of its parts are found."""

    manifest: Manifest
    model: PackedModel
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
        return TaskRunner.of(self.manifest, kernel, model, stop)
