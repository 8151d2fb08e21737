"""The options that say who does the work, shared by `sample`, `infill`, `translate`, `resume`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from maskov.cli.dataclass_options import option
from maskov.workers import Workers

_WORKERS = "Advanced: workers"


@dataclass(frozen=True)
class WorkerOptions:
    """Everything the command line can say about who does the work."""

    workers: Annotated[
        int | None,
        option(
            "--workers",
            "processes that share the chains, 0: this one (default: automatic)",
            _WORKERS,
            "-w",
        ),
    ] = None
    engine: Annotated[
        str, option("--engine", "place of the workers: local, or ray (a cluster)", _WORKERS)
    ] = "local"
    address: Annotated[
        str | None,
        option("--address", "address of a Ray cluster (default: one started here)", _WORKERS),
    ] = None
    gpus_per_worker: Annotated[
        float,
        option(
            "--gpus-per-worker",
            "GPUs of each worker of a Ray cluster; 0: automatic",
            _WORKERS,
        ),
    ] = 0.0

    def build_workers(self, threads: int | None = None) -> Workers:
        """Return the workers; options that would do nothing are refused."""
        return Workers(self.workers, self.engine, self.address, self.gpus_per_worker, threads)
