"""A model whose answers are kept: each masked sequence runs through the network once.

A lattice of 1,024 sequences of 121 letters has 119,000 different masked sequences. An hour of a
CPU answers them all; then chains of any number and kind cost nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from maskov.models import MaskedModel
from maskov.models.base import Queries
from maskov.types import Tensor

# Passes of a file: what a stopped run loses at most.
SHARD = 1024
# Passes at a time: a GPU wants more.
BATCH, GPU_BATCH = 64, 512


class Answers(MaskedModel):
    """A model and the scores that it gave, by masked sequence; its vectors are its scores."""

    def __init__(self, model: MaskedModel) -> None:
        self.model = model
        self.name, self.mask_id, self.forbidden = model.name, model.mask_id, model.forbidden.cpu()
        self.min_length, self.max_length = model.min_length, model.max_length
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.asked = 0
        self._rows: dict[bytes, int] = {}
        self._scores = np.empty((0, model.vocabulary_size), np.float32)

    def load(self, folder: Path) -> None:
        """Take over what `fill` has written."""
        keys, scores = [], [self._scores]
        for file in sorted(folder.glob("*.npz")):
            with np.load(file) as shard:
                keys += [row.tobytes() for row in shard["contexts"]]
                scores.append(shard["scores"])
        first = len(self._scores)
        self._scores = np.concatenate(scores)
        self._rows |= {key: first + row for row, key in enumerate(keys)}

    def fill(self, contexts: np.ndarray, folder: Path, part: int, parts: int) -> Iterable[int]:
        """Answer one part of the masked sequences into files; yield how many are there."""
        folder.mkdir(parents=True, exist_ok=True)
        for first in range(part * SHARD, len(contexts), parts * SHARD):
            file = folder / f"{first:07d}.npz"
            if not file.exists():
                rows = contexts[first : first + SHARD]
                size = BATCH if self.model.device.type == "cpu" else GPU_BATCH
                scores = [self._run(rows[at : at + size]) for at in range(0, len(rows), size)]
                unfinished = file.with_suffix(".tmp")
                with unfinished.open("wb") as out:
                    np.savez(out, contexts=rows, scores=np.concatenate(scores))
                unfinished.rename(file)
            yield min(first + SHARD, len(contexts))

    def _run(self, contexts: np.ndarray) -> np.ndarray:
        tokens = torch.from_numpy(contexts.astype(np.int64)).to(self.model.device)
        place = (tokens == self.mask_id).int().argmax(1)
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        scores = self.model.logits(self.model.hidden_at(tokens, lengths, place))
        return scores.float().cpu().numpy()

    def hidden(self, queries: Queries) -> Tensor:
        """Look the scores up; the network runs where they are missing."""
        assert bool((queries.masked.sum(1) == 1).all()), "one place is masked at a time"
        masked = queries.tokens.masked_fill(queries.masked, self.mask_id).numpy().astype(np.uint8)
        lengths = queries.lengths.tolist()
        keys = [row[:length].tobytes() for row, length in zip(masked, lengths, strict=True)]
        missing = sorted({key for key in keys if key not in self._rows})
        if missing:
            self.asked += len(missing)
            size = len(self._scores)
            new = np.stack([np.frombuffer(key, np.uint8) for key in missing])
            self._scores = np.concatenate([self._scores, self._run(new)])
            self._rows |= {key: size + at for at, key in enumerate(missing)}
        return torch.from_numpy(self._scores[[self._rows[key] for key in keys]])

    def scores_at(self, ids: np.ndarray, place: int) -> np.ndarray:
        """Return the scores of all tokens at one place of sequences of one length."""
        tokens = torch.from_numpy(ids.astype(np.int64))
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, place] = True
        lengths = torch.full((len(ids),), ids.shape[1])
        return self.hidden(Queries(tokens, lengths, masked)).numpy()

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the vectors, which are scores."""
        return hidden

    @property
    def bytes_per_token(self) -> int:
        """Almost nothing."""
        return 64

    def encode(self, text: str) -> list[int]:
        """Turn a text into tokens as the model does."""
        return self.model.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Turn tokens into a text as the model does."""
        return self.model.decode(ids)

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the model's spelling of tokens."""
        return self.model.token_strings(ids)

    def fingerprint(self) -> str:
        """Return a hash of the model's."""
        return hashlib.sha256(f"answers of {self.model.fingerprint()}".encode()).hexdigest()
