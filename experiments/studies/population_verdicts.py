"""How often verdicts on populations are right: toys whose log Z is known, in NumPy.

    python -m experiments.studies.population_verdicts --runs 200 --out results/evidence

A sequence is L letters, each an `a` with probability p under the start. Three targets:

- `ising`: neighbours that are equal gain J (log Z by the transfer matrix);
- `ridge`: each `a` gains G, but the number of them loses K times its distance from L/2
  (log Z by the binomial sum): a narrow target;
- `island`: sequences with M or more `a` gain G in all (log Z by the binomial sum): a part of the
  target that few particles see.

A run is several populations, every second of which makes five times as many moves. What its
verdict says is compared with the error of its log Z.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.populations import PopulationSummary

Reals = npt.NDArray[np.float64]
LONGER = 5
# A run is wrong if its log Z is off by more than this, and right if by less than half of it.
WRONG = 0.5


@dataclass(frozen=True)
class Toy:
    """A target: the log of its weight relative to the start, and its log Z."""

    name: str
    length: int
    share: float
    gain: Callable[[npt.NDArray[np.int8]], Reals]
    log_z: float


def ising(length: int, coupling: float) -> Toy:
    """Equal neighbours gain; letters are even."""

    def gain(letters: npt.NDArray[np.int8]) -> Reals:
        equal = (letters[..., 1:] == letters[..., :-1]).sum(-1)
        return coupling * equal.astype(float)

    log_z = (length - 1) * math.log((math.exp(coupling) + 1) / 2)
    return Toy(f"ising, L = {length}, J = {coupling:g}", length, 0.5, gain, log_z)


def of_counts(name: str, length: int, share: float, of: Callable[[Reals], Reals]) -> Toy:
    """Return a target that depends on the number of `a` alone."""
    counts = np.arange(length + 1.0)
    log_choose = np.array([
        math.lgamma(length + 1) - math.lgamma(n + 1) - math.lgamma(length - n + 1) for n in counts
    ])  # fmt: skip
    prior = log_choose + counts * math.log(share) + (length - counts) * math.log(1 - share)
    log_z = float(np.logaddexp.reduce(prior + of(counts)))
    return Toy(name, length, share, lambda letters: of(letters.sum(-1).astype(float)), log_z)


def ridge(length: int, share: float, gain: float, slope: float) -> Toy:
    """Gain for each `a`, less for those that are far from half."""
    name = f"ridge, L = {length}, p = {share:g}, G = {gain:g}, K = {slope:g}"
    return of_counts(
        name, length, share, lambda n: gain * n - slope * np.abs(n - length / 2)
    )  # fmt: skip


def island(length: int, share: float, least: int, gain: float) -> Toy:
    """Gain for many `a` together."""
    name = f"island, L = {length}, p = {share:g}, M = {least}, G = {gain:g}"
    return of_counts(name, length, share, lambda n: gain * (n >= least))


TOYS = (
    ising(24, 1.0), ising(24, 2.0),
    ridge(24, 0.25, 1.5, 0.5), ridge(60, 0.1, 1.0, 0.2),
    island(24, 0.25, 12, 4.0), island(24, 0.25, 14, 7.0),
)  # fmt: skip
# Particles, points of the path, moves at each.
SETTINGS = ((32, 8, 1), (32, 24, 2), (128, 12, 1), (128, 24, 4), (64, 40, 12))


def run(
    toy: Toy, particles: int, points: int, moves: int, populations: int, seed: int
) -> PopulationSummary:
    """Take populations along an even path."""
    rng = np.random.default_rng(seed)
    shape = (populations, particles)
    letters = (rng.random((*shape, toy.length)) < toy.share).astype(np.int8)
    ancestor = np.tile(np.arange(particles), (populations, 1))
    gain, weights = toy.gain(letters), []
    rows = np.arange(populations)[:, None]
    longer = rows % 2 == 1
    for point in range(1, points + 1):
        weights.append(gain / points)
        ends = np.exp(weights[-1] - weights[-1].max(1, keepdims=True)).cumsum(1)
        places = (np.arange(particles) + rng.random((populations, 1))) / particles
        index = np.stack([
            np.minimum(np.searchsorted(e / e[-1], p, side="right"), particles - 1)
            for e, p in zip(ends, places, strict=True)
        ])  # fmt: skip
        letters, gain, ancestor = letters[rows, index], gain[rows, index], ancestor[rows, index]
        for move in range(LONGER * moves):
            place = rng.integers(toy.length, size=shape)
            new = letters.copy()
            drawn = (rng.random(shape) < toy.share).astype(np.int8)
            np.put_along_axis(new, place[..., None], drawn[..., None], axis=2)
            after = toy.gain(new)
            ratio = (after - gain) * point / points
            accepted = np.log(rng.random(shape)) < ratio
            accepted &= longer | (move < moves)
            letters = np.where(accepted[..., None], new, letters)
            gain = np.where(accepted, after, gain)
    return PopulationSummary(
        np.stack(weights), ancestor, -gain, moves=moves * points, positions=toy.length
    )


def rates(toy: Toy, setting: tuple[int, int, int], populations: int, runs: int) -> dict[str, Any]:
    """Return how many runs are wrong or right, and how many of each are called converged."""
    counts = dict.fromkeys(("wrong", "wrong_converged", "right", "right_converged"), 0)
    errors = []
    for seed in range(runs):
        found = run(toy, *setting, populations, seed)
        error = found.log_z.value - toy.log_z
        errors.append(error)
        kind = "wrong" if abs(error) > WRONG else "right" if abs(error) < WRONG / 2 else None
        if kind is not None:
            counts[kind] += 1
            counts[f"{kind}_converged"] += not found.problems
    return {"toy": toy.name, "setting": setting, "populations": populations, "runs": runs,
            "error": float(np.mean(errors)), **counts}  # fmt: skip


def main() -> None:
    """Measure all toys in all settings, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--populations", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for populations in given.populations:
        for toy in TOYS:
            for setting in SETTINGS:
                rows.append(rates(toy, setting, populations, given.runs))
                print(json.dumps(rows[-1]), flush=True)
        mine = [one for one in rows if one["populations"] == populations]
        for kind in ("wrong", "right"):
            number, converged = (
                sum(one[key] for one in mine) for key in (kind, f"{kind}_converged")
            )
            print(f"{populations} populations: {number} {kind} runs, {converged} called converged")
    if given.out is not None:
        (given.out / "verdicts.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
