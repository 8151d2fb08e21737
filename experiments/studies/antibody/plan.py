"""How far samples of the lattice may be from its law by chance, from the exact transition matrix.

Steps are those of single sites in random places, tested at once; an epoch has as many as there are
varied places. Orders without replacement and early tests are left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.studies.antibody.answers import Answers
from experiments.studies.antibody.lattice import Lattice

Matrix = npt.NDArray[np.float64]


def transitions(lattice: Lattice, answers: Answers, law: Matrix) -> Matrix:
    """Return the transition matrix of a step at a random varied place."""
    ids = np.array([answers.encode(" ".join(one)) for one in lattice.sequences], np.uint8)
    size, rows = len(ids), np.arange(len(ids))
    found = np.zeros((size, size))
    for number, (at, letters) in enumerate(lattice.letters.items()):
        bit = 1 << (len(lattice.letters) - 1 - number)
        other, second = rows ^ bit, rows & bit > 0
        scores = answers.scores_at(ids, at)[:, answers.encode(" ".join(letters))].astype(float)
        chance = 1 / (1 + np.exp(np.where(second, 1, -1) * (scores[:, 1] - scores[:, 0])))
        # The pass that masks the place is the same before and after.
        ratio = law[other] * (1 - chance) / (law[rows] * chance)
        found[rows, other] = chance * np.minimum(1, ratio) / len(lattice.letters)
    found[rows, rows] = 1 - found.sum(1)
    return found


def expected(places: int, step: Matrix, law: Matrix, chains: int, epochs: int) -> dict[str, Any]:
    """Return the total variation that a run may have by chance and because of its starts."""
    burn_in, roots = max(epochs // 10, 1), np.sqrt(law)
    values, vectors = np.linalg.eigh(roots[:, None] * step / roots)
    values, draws = np.clip(values, -1, 1) ** places, chains * (epochs - burn_in)
    moving, vectors_moving = values[:-1], vectors[:, :-1]
    variance = law * (vectors_moving**2 @ ((1 + moving) / (1 - moving)))
    kept = np.arange(burn_in, epochs)
    start = np.full(len(law), 1 / len(law)) / roots @ vectors_moving
    bias = roots * (vectors_moving @ (start * (moving[:, None] ** kept).mean(1)))
    return {
        "chains": chains,
        "epochs": epochs,
        "relaxation_epochs": -1 / math.log(moving[-1]),
        "total_variation_by_chance": 0.5 * float(np.sqrt(2 / math.pi * variance / draws).sum()),
        "total_variation_of_starts": 0.5 * float(np.abs(bias).sum()),
    }
