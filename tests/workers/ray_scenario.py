"""A run on a Ray cluster of two nodes, one of which is killed; run in a network of its own.

    python ray_scenario.py FOLDER HOW

`HOW` is `killed` (kill -9 of a node while it works), `worker` (of one of its processes), `whole`,
or a number: so many kills of either at random moments, over as many runs as that takes, each begun
with two nodes. Runs are then FOLDER/0, FOLDER/1 ...
"""

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import maskov
from maskov import Metropolis, Raw, Schedule, Workers
from maskov.config import ModelSource

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


class Killer:
    """Listens to a run; once its chains move, it kills what it was told to kill."""

    def __init__(self, kill) -> None:
        self.kill = kill
        self.killed = 0

    def begun(self, model):
        pass

    def noted(self, text):
        pass

    def moved(self, state, epoch, passes):
        if epoch >= 2 and not self.killed:
            self.killed = 1
            self.kill()

    def epoch_ended(self, epoch, values, passes):
        pass


def killed_at_random(cluster, node, any_worker, workers, folder, wanted) -> dict[str, int]:
    """Make runs while nodes and processes are killed, until there were so many kills."""
    moments, over = random.Random(0), threading.Event()
    kills = {"node": 0, "worker": 0}
    nodes = [node]

    def kill_now_and_then() -> None:
        while not over.wait(moments.uniform(0.2, 3)) and sum(kills.values()) < wanted:
            if nodes and moments.random() < 0.5:
                cluster.remove_node(nodes.pop(), allow_graceful=False)
                kills["node"] += 1
            else:
                kills["worker"] += any_worker()

    hand = threading.Thread(target=kill_now_and_then, daemon=True)
    hand.start()
    runs = 0
    while hand.is_alive() and runs < 50:
        if not nodes:
            # Ray starts nodes in the main thread only, so between runs.
            nodes.append(cluster.add_node(num_cpus=2))
        sampled(folder / str(runs), workers=workers)
        runs += 1
    over.set()
    hand.join()
    return {**kills, "runs": runs}


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
            if title.startswith(b"ray::carry_out"):
                os.kill(int(pid), signal.SIGKILL)
                return True
        return False

    def worker() -> None:
        if not any_worker():
            raise SystemExit("there was no worker to kill")

    workers = Workers(engine="ray", address=cluster.address)
    if how.isdigit():
        print(json.dumps(killed_at_random(cluster, second, any_worker, workers, folder, int(how))))
        cluster.shutdown()
        return
    killer = Killer({"killed": node, "worker": worker, "whole": lambda: None}[how])
    sampled(folder, workers=workers, listener=killer)
    print(json.dumps({"killed": killer.killed, "left": ray.is_initialized()}))
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
