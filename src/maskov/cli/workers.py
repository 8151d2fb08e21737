"""The options that say who does the work, shared by `sample`, `infill`, `translate`, `resume`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from maskov.cli.dataclass_options import option
from maskov.workers import Workers

_WORKERS = "Workers"


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
        str, option("--engine", "where they are: local, or ray (a cluster)", _WORKERS)
    ] = "local"
    address: Annotated[
        str | None,
        option("--address", "of a Ray cluster; begun here unless given", _WORKERS),
    ] = None
    gpus_per_worker: Annotated[
        float, option("--gpus-per-worker", "of a Ray cluster; 1 if the model is on one", _WORKERS)
    ] = 0.0

    def build_workers(self, threads: int | None = None) -> Workers:
        """Return the workers; options that would do nothing are refused."""
        return Workers(self.workers, self.engine, self.address, self.gpus_per_worker, threads)
