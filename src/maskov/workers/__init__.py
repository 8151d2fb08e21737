"""Who carries out the tasks of a run: this process, several on this machine, or a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass

from maskov.errors import refuse

ENGINES = ("local", "ray")
_MOST = 1024


@dataclass(frozen=True)
class Workers:
    """Where tasks are carried out: `count` processes here, or on a Ray cluster at `address`.

    0 is this process itself; None is automatic: on a CPU a process for each core, if the run is
    long enough to make up for starting them. The samples are the same in any case. Each process
    computes with so many `threads` on a CPU (default: 1); they decide how sums are rounded, so a
    run keeps to the number it was begun with. On a cluster a task takes `gpus_per_worker` GPUs, and
    `count` 0 means as many tasks at once as the cluster has room for.
    """

    count: int | None = 0
    engine: str = "local"
    address: str | None = None
    gpus_per_worker: float = 0.0
    threads: int | None = None

    def __post_init__(self) -> None:
        refuse(
            (
                self.engine not in ENGINES,
                f"unknown engine '{self.engine}'; use one of {', '.join(ENGINES)}.",
            ),
            *(
                (
                    value is not None and not least <= value <= _MOST,
                    f"{option} must be between {least} and {_MOST}, not {value}.",
                )
                for option, value, least in (
                    ("--workers", self.count, 0),
                    ("--threads", self.threads, 1),
                    ("gpus_per_worker", self.gpus_per_worker, 0),
                )
            ),
            (
                self.engine != "ray" and (self.address is not None or self.gpus_per_worker),
                "address and gpus_per_worker are those of --workers 'ray(...)'.",
            ),
        )

    @property
    def here(self) -> bool:
        """Whether this process may carry out all tasks itself."""
        return self.engine == "local" and not self.count
