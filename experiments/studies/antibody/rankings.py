"""What models think of each letter at each place of a parent: probabilities, places × letters.

Each ranking of a chain is an array; those of frozen places hold the parent's letter alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import maskov
from maskov import MaskedConditional, Metropolis, Record, Schedule, Site
from maskov.config import LinearSchedule
from maskov.energies.counting import Hamming
from maskov.models import MaskedModel
from maskov.types import Tensor

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
Ranking = npt.NDArray[np.float64]


def one_pass(model: MaskedModel, sequence: str) -> Ranking:
    """Return the unmasked probabilities, Sapiens' own way to score letters."""
    network: Any = model
    ids = [*network.frame.before.tolist(), *_ids(model, sequence), *network.frame.after.tolist()]
    logits = network.network(input_ids=torch.tensor([ids], device=model.device)).logits[0]
    first = len(network.frame.before)
    return _by_letter(model, logits[first : first + len(sequence)])


def masked(model: MaskedModel, sequence: str) -> Ranking:
    """Return the masked conditionals of the sequence: one pass for each place."""
    size = len(sequence)
    ids = torch.tensor([_ids(model, sequence)], device=model.device).expand(size, -1)
    lengths = torch.full((size,), size, device=model.device)
    found = []
    for places in torch.arange(size, device=model.device).split(32):
        rows = slice(int(places[0]), int(places[-1]) + 1)
        found.append(model.logits(model.hidden_at(ids[rows], lengths[rows], places)))
    return _by_letter(model, torch.cat(found))


def samples(
    model: MaskedModel, name: str, sequence: str, held: set[int], *, energy: str, keep: float,
    temperature: float, chains: int, epochs: int, seed: int,
) -> Ranking:  # fmt: skip
    """Return the shares of letters in samples of an energy, frozen places apart."""
    target: Any = maskov.parse_energy(energy)
    if keep:
        target = target + keep * Hamming()
    conditional = MaskedConditional()
    schedule = Schedule(
        epochs=epochs, burn_in=epochs // 3,
        target_temperature=LinearSchedule(temperature, 0.0, temperature),
    )  # fmt: skip
    frozen = "".join("#" if at in held else "." for at in range(len(sequence)))
    run = maskov.sample(
        model, Metropolis(target, Site(conditional)), schedule, chains=chains,
        texts=[Record(name, sequence)], freeze=[frozen], thin=1, seed=seed,
    )  # fmt: skip
    counts = np.zeros((len(sequence), len(LETTERS)))
    for sample in run.samples:
        for at, letter in enumerate(sample.tokens):
            counts[at, LETTERS.index(letter)] += 1
    # Half a draw for each letter, so that none is impossible.
    counts += 0.5
    return counts / counts.sum(1, keepdims=True)


def product(rankings: list[Ranking], weights: list[float]) -> Ranking:
    """Return the normalised weighted geometric mean, place by place."""
    logs = sum(w * np.log(np.maximum(one, 1e-12)) for one, w in zip(rankings, weights, strict=True))
    found = np.exp(logs - np.max(logs, axis=1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def _ids(model: MaskedModel, sequence: str) -> list[int]:
    return model.encode(" ".join(sequence))


def _by_letter(model: MaskedModel, logits: Tensor) -> Ranking:
    """Return probabilities of the twenty letters."""
    names = model.token_strings(range(model.vocabulary_size))
    columns = [names.index(letter) for letter in LETTERS]
    return logits[:, columns].double().softmax(-1).cpu().numpy()
