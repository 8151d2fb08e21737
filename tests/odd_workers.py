"""Workers that no user would want: they lose tasks, are slow and answer in any order."""

import pickle
import random
from pathlib import Path

import torch

import maskov
from maskov.models.packed import PickledModel
from maskov.runs.coordinator import Pool, Task, TaskResult
from maskov.workers import pools as api
from maskov.workers.pools import Job


class OddPool(Pool):
    """Several workers in one process, which carry out tasks in a random order and lose some.

    Everything goes over the wire, as bytes; a lost task was carried out, but nobody heard of it.
    """

    def __init__(
        self, job: Job, count: int, seed: int, lost: float = 0.3, seconds=(0.0, 0.0, 0.0, 1e9)
    ) -> None:
        self.random = random.Random(seed)
        self.times = seconds
        super().__init__(count, 0.0)
        self.runners = [job.runner(torch.device("cpu")) for _ in range(count)]
        self.lost = lost
        self.losses = 0

    @property
    def seconds(self) -> float:
        """Return any time."""
        return self.random.choice(self.times)

    @seconds.setter
    def seconds(self, _: float) -> None:
        pass

    def _begin(self, task: Task) -> bytes:
        return pickle.dumps(task)

    def _ended(self, seconds: float) -> list[bytes]:
        return [self.random.choice(list(self._running))]

    def _result(self, one: bytes, task: Task) -> TaskResult | str:
        while True:
            result = self.random.choice(self.runners).run(pickle.loads(one))
            # The first task is lost in any case.
            if self.losses and self.random.random() >= self.lost:
                return pickle.loads(pickle.dumps(result))
            self.losses += 1

    def close(self) -> None:
        pass


def oddly(monkeypatch, count: int, seed: int, **settings) -> list[OddPool]:
    """Let runs have odd workers; return the pools that were made."""
    made: list[OddPool] = []

    def pool(workers, _, manifest, model, *rest):
        made.append(OddPool(Job(manifest, PickledModel.of(model)), count, seed, **settings))
        return made[-1]

    monkeypatch.setattr(api, "pool_for", pool)
    return made


def files(folder: Path) -> dict[str, bytes]:
    """Return what a run folder came to: samples and traces."""
    kept = [folder / "samples.jsonl", *sorted(folder.glob("*.npy"))]
    return {file.name: file.read_bytes() for file in kept}


def texts(run: maskov.Run) -> list[str]:
    """Return the samples of a run, every digit of them."""
    return [one.to_json() for one in run.samples]
