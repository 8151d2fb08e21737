"""A run on a Ray cluster of two nodes, one of which is killed; run in a network of its own.

    python ray_scenario.py FOLDER HOW

`HOW` is `killed` (kill -9 of a node while it works), `worker` (of one of its processes) or `whole`.
"""

import json
import os
import signal
import sys
from pathlib import Path

import maskov
from maskov import Metropolis, Raw, Schedule, Workers
from maskov.config import ModelSource
from maskov.runs.coordinator import Silent

SETTINGS = {
    "schedule": Schedule(epochs=30),
    "chains": 12,
    "length": (6, 10),
    "seed": 5,
    "thin": 10,
    "resident": 2,
}


def sampled(folder: Path, **more) -> None:
    """Make the run that all ways of making it are compared by."""
    model = maskov.load("untrained", "cpu")
    maskov.sample(model, Metropolis(Raw()), out=folder, source=ModelSource("untrained"), **SETTINGS,
                  **more)  # fmt: skip


class Killer(Silent):
    """Listens to a run; once its chains move, it kills what it was told to kill."""

    def __init__(self, kill) -> None:
        self.kill = kill
        self.killed = 0

    def moved(self, state, epoch, passes):
        if epoch >= 2 and not self.killed:
            self.killed = 1
            self.kill()


def main(folder: Path, how: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def node() -> None:
        cluster.remove_node(second, allow_graceful=False)

    def any_worker() -> bool:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_on_node"):
                os.kill(int(pid), signal.SIGKILL)
                return True
        return False

    def worker() -> None:
        if not any_worker():
            raise SystemExit("there was no worker to kill")

    workers = Workers(engine="ray", address=cluster.address)
    killer = Killer({"killed": node, "worker": worker, "whole": lambda: None}[how])
    sampled(folder, workers=workers, listener=killer)
    print(json.dumps({"killed": killer.killed, "left": ray.is_initialized()}))
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
