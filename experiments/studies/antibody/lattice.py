"""A lattice of antibodies: ten places of CR6261 with two letters each, 1,024 sequences."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.studies.antibody.data import frozen, rows_of
from maskov import AllowedTokens
from maskov.models import MaskedModel


@dataclass(frozen=True)
class Lattice:
    """All sequences that have one of two letters at each varied place, counted from 0."""

    parent: str
    letters: dict[int, str]

    @classmethod
    def read(cls, data: Path, places: int) -> Lattice:
        """Take the first varied places of CR6261's heavy chain."""
        sequences = sorted({row["heavy"] for row in rows_of(data / "cr6261_h1_kd.csv")})
        columns = [sorted(set(column)) for column in zip(*sequences, strict=True)]
        varied = [at for at, found in enumerate(columns) if len(found) == 2][:places]
        return cls(sequences[0], {at: "".join(columns[at]) for at in varied})

    @property
    def sequences(self) -> list[str]:
        """All of them."""
        found = []
        for chosen in itertools.product(*self.letters.values()):
            made = list(self.parent)
            for at, letter in zip(self.letters, chosen, strict=True):
                made[at] = letter
            found.append("".join(made))
        return found

    @property
    def allowed(self) -> AllowedTokens:
        """The constraint that keeps chains on the lattice."""
        return frozen(self.parent, self.letters)

    def contexts(self, model: MaskedModel) -> np.ndarray:
        """Return every sequence with one place masked, each once."""
        ids = np.array([model.encode(" ".join(one)) for one in self.sequences], np.uint8)
        masked = np.repeat(ids[:, None], ids.shape[1], axis=1)
        places = np.arange(ids.shape[1])
        masked[:, places, places] = model.mask_id
        return np.unique(masked.reshape(-1, ids.shape[1]), axis=0)
