"""Samples of E_norm on the lattice against its enumerated law."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import numpy as np
import torch

import maskov
from experiments.studies.antibody.answers import Answers
from experiments.studies.antibody.lattice import Lattice
from maskov import MaskedConditional, Metropolis, Record, Schedule, Site


def enumerate_law(lattice: Lattice, answers: Answers) -> dict[str, Any]:
    """Return the energies of all sequences, and what their law looks like."""
    records = [Record(one, one) for one in lattice.sequences]
    energies = [one.energy for one in maskov.score(answers, records, maskov.Norm())]
    law = torch.softmax(-torch.tensor(energies, dtype=torch.float64), 0)
    likely = law.sort(descending=True).values
    return {
        "model": answers.name,
        "parent": lattice.parent,
        "letters": {str(at): letters for at, letters in lattice.letters.items()},
        "entropy_bits": float(-(law * law.log2()).sum()),
        "largest_probability": float(likely[0]),
        "sequences_that_hold_99_percent": int((likely.cumsum(0) < 0.99).sum()) + 1,
        "energies": [round(energy, 6) for energy in energies],
    }


def sampled(
    lattice: Lattice, answers: Answers, law: dict[str, Any], chains: int, epochs: int, seed: int
) -> dict[str, Any]:
    """Return the distance of samples to the law; chains start at sequences all over the lattice."""
    began = time.monotonic()
    move = Site(MaskedConditional(constraints=(lattice.allowed,)))
    frozen = "".join("." if at in lattice.letters else "#" for at in range(len(lattice.parent)))
    every = lattice.sequences
    numbers = np.linspace(0, len(every) - 1, chains).round().astype(int)
    starts = [Record(f"{number}-{at}", every[at]) for number, at in enumerate(numbers)]
    burn_in = max(epochs // 10, 1)
    run = maskov.sample(
        answers, Metropolis(maskov.Norm(), move), Schedule(epochs=epochs, burn_in=burn_in),
        chains=1, texts=starts, freeze=[frozen] * len(starts), thin=1, seed=seed,
    )  # fmt: skip
    drawn = Counter("".join(sample.tokens) for sample in run.samples)
    assert drawn.keys() <= set(every), "a sample left the lattice"
    size = drawn.total()
    expected = torch.softmax(-torch.tensor(law["energies"], dtype=torch.float64), 0)
    share = torch.tensor([drawn[one] for one in every], dtype=torch.float64) / size
    # The mean total variation of as many independent draws.
    noise = 0.5 * (2 * expected * (1 - expected) / (math.pi * size)).sqrt().sum()
    return {
        "chains": chains,
        "epochs": epochs,
        "draws": size,
        "total_variation": 0.5 * float((share - expected).abs().sum()),
        "of_independent_draws": float(noise),
        "novel_rate": run.summary().novel_rate,
        "passes": int(run.traces["passes"].sum()),
        "seconds": round(time.monotonic() - began, 1),
        "signature": run.signature,
    }
