"""All that a worker must know of a run."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from maskov.config import Manifest
from maskov.errors import MaskovError, RunError
from maskov.models.scorer import is_out_of_memory
from maskov.models.serialization import PickledModel
from maskov.runs.rebuild import kernel_of
from maskov.runs.task import Task, TaskResult
from maskov.runs.task_runner import TaskRunner
from maskov.tuning.tune import tuned


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
        return TaskRunner.of(self.manifest, kernel, model, stop)


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
