"""Crews that no user would want: they lose turns, dawdle and answer in any order."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from maskov.workers.base import Crew, Job

import maskov
from maskov.models.serialization import PackedModel
from maskov.runs import api
from maskov.runs.task import Taken, Turn
from maskov.workers.serialization import put_result, put_turn, take_result, take_turn


class OddCrew(Crew):
    """Several workers in one process, who take turns in a random order and lose some of them.

    Everything goes over the wire, as bytes; a turn that was lost was taken, but nobody heard of it.
    """

    def __init__(
        self, job: Job, count: int, seed: int, lost: float = 0.3, seconds=(0.0, 0.05, 0.2)
    ) -> None:
        self.loops = [job.loop(torch.device("cpu")) for _ in range(count)]
        self.random = random.Random(seed)
        self.lost = lost
        self.seconds = seconds
        self.turns: list[bytes] = []
        self.losses = 0
        self._passes = 0

    @property
    def free(self) -> int:
        return len(self.loops) - len(self.turns)

    @property
    def passes(self) -> int:
        return self._passes

    def give(self, turn: Turn) -> None:
        self.turns.append(put_turn(turn))

    def take(self) -> Taken:
        content = self.turns.pop(self.random.randrange(len(self.turns)))
        while True:
            loop = self.random.choice(self.loops)
            taken = take_result(put_result(loop.take(take_turn(content))))
            # The first turn is lost in any case.
            if self.losses and self.random.random() >= self.lost:
                self._passes += taken.passes
                return taken
            self.losses += 1

    def turn_seconds(self, checkpoint_seconds: float) -> float:
        """Nobody knows how long a turn lasts."""
        return self.random.choice(self.seconds)

    def close(self) -> None:
        pass


def oddly(monkeypatch, count: int, seed: int, **settings) -> list[OddCrew]:
    """Let runs with workers have an odd crew; return the crews that were made."""
    made: list[OddCrew] = []

    def crew(workers, manifest, model, groups, stop):
        made.append(OddCrew(Job(manifest, PackedModel.of(model)), count, seed, **settings))
        return made[-1]

    monkeypatch.setattr(api, "crew_for", crew)
    return made


def files(folder: Path) -> dict[str, bytes]:
    """Return what a run folder came to: samples and traces."""
    kept = [folder / "samples.jsonl", *sorted((folder / "traces").iterdir())]
    return {file.name: file.read_bytes() for file in kept}


def texts(run: maskov.Run) -> list[str]:
    """Return the samples of a run, every digit of them."""
    return [one.to_json() for one in run.samples]
