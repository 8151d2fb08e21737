"""The one interface between a run's driver and whoever takes its turns.

Turns are stateless: a turn that was lost with its worker is given to another and comes to the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from maskov.models.serialization import PackedModel
from maskov.runs.loop import Loop
from maskov.runs.rebuild import kernel_of
from maskov.runs.task import Taken, Turn

# A turn is handed over and back, so that it should last a while; whatever it came to is lost with
# its worker, so that it should be shorter than the time between checkpoints.
_SHORTEST, _SHARE = 1.0, 1 / 3
# A turn that ends its worker so many times in a row is not given to another.
MOST_DEATHS = 4


class Crew(ABC):
    """Takes turns, several at once where there are several workers."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many turns could be begun now."""

    @property
    @abstractmethod
    def passes(self) -> int:
        """The masked passes that the turns have taken so far."""

    @abstractmethod
    def give(self, turn: Turn) -> None:
        """Have a turn begun; there must be a free place."""

    @abstractmethod
    def take(self) -> Taken:
        """Wait for a turn to end; raise `Interrupted` when asked to stop in the meantime."""

    def recall(self) -> list[Taken]:
        """Ask all who are at work to stop, and return what they came to, if they can say."""
        return []

    def turn_seconds(self, checkpoint_seconds: float) -> float:
        """Return how long one turn should last."""
        return max(checkpoint_seconds * _SHARE, _SHORTEST)

    @abstractmethod
    def close(self) -> None:
        """Send everybody home."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Job:
    """All that a worker must know of a run: what it is, and the model."""

    manifest: dict[str, Any]
    packed: PackedModel

    def loop(self, device: torch.device, stop: Callable[[], bool] | None = None) -> Loop:
        """Build the model and the kernel here, once; the loop then takes one turn after another."""
        if device.type == "cpu":
            torch.set_num_threads(self.manifest["threads"])
        if device.type == "cuda":
            # Kernels of our own and recorded rounds go to the current device.
            torch.cuda.set_device(device.index or 0)
        model = self.packed.unpack(device)
        return Loop.of(self.manifest, kernel_of(self.manifest, model), model, stop)
