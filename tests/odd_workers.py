"""Workers that no user would want: they lose tasks, are slow and answer in any order."""

from __future__ import annotations

import random
from pathlib import Path

import torch

import maskov
from maskov.models.serialization import PickledModel
from maskov.runs.task import Task, TaskResult, WorkerPool
from maskov.workers import carry_out as api
from maskov.workers.job import Job, result_from, task_from, to_bytes


class OddPool(WorkerPool):
    """Several workers in one process, which carry out tasks in a random order and lose some.

    Everything goes over the wire, as bytes; a lost task was carried out, but nobody heard of it.
    """

    def __init__(
        self, job: Job, count: int, seed: int, lost: float = 0.3, seconds=(0.0, 0.05, 0.2)
    ) -> None:
        self.runners = [job.runner(torch.device("cpu")) for _ in range(count)]
        self.random = random.Random(seed)
        self.lost = lost
        self.seconds = seconds
        self.tasks: list[bytes] = []
        self.losses = 0
        self._passes = 0

    @property
    def free(self) -> int:
        return len(self.runners) - len(self.tasks)

    @property
    def passes(self) -> int:
        return self._passes

    def give(self, task: Task) -> None:
        self.tasks.append(to_bytes(task))

    def take(self) -> TaskResult:
        content = self.tasks.pop(self.random.randrange(len(self.tasks)))
        while True:
            runner = self.random.choice(self.runners)
            result = result_from(to_bytes(runner.carry_out(task_from(content))))
            # The first task is lost in any case.
            if self.losses and self.random.random() >= self.lost:
                self._passes += result.passes
                return result
            self.losses += 1

    def task_seconds(self, checkpoint_every: float) -> float:
        """Return any time."""
        return self.random.choice(self.seconds)

    def close(self) -> None:
        pass


def oddly(monkeypatch, count: int, seed: int, **settings) -> list[OddPool]:
    """Let runs have odd workers; return the pools that were made."""
    made: list[OddPool] = []

    def pool(workers, manifest, model, groups, stop):
        made.append(OddPool(Job(manifest, PickledModel.of(model)), count, seed, **settings))
        return made[-1]

    monkeypatch.setattr(api, "pool_for", pool)
    return made


def files(folder: Path) -> dict[str, bytes]:
    """Return what a run folder came to: samples and traces."""
    kept = [folder / "samples.jsonl", *sorted((folder / "traces").iterdir())]
    return {file.name: file.read_bytes() for file in kept}


def texts(run: maskov.Run) -> list[str]:
    """Return the samples of a run, every digit of them."""
    return [one.to_json() for one in run.samples]
