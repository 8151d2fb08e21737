"""Who is to take the turns of a run, as the user says it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.errors import InputError

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
