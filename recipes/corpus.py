"""Tokenised sentences grouped by length, so that batches need no padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

SHORTEST, LONGEST = 5, 60  # tokens, without the frame
_CHUNK = 50_000


class Corpus:
    """All sentences of each length as one matrix, framed by the start and end tokens."""

    def __init__(self, groups: dict[int, Tensor]) -> None:
        self.groups = groups

    @classmethod
    def of(cls, sentences: Iterable[str], tokenizer: Any, device: torch.device) -> Corpus:
        """Tokenise; drop sentences that are too short, too long or have unknown words."""
        rows: dict[int, list[np.ndarray]] = {}
        chunk: list[str] = []

        def flush() -> None:
            for encoding in tokenizer._tokenizer.encode_batch(chunk):
                ids = encoding.ids
                if SHORTEST <= len(ids) - 2 <= LONGEST and tokenizer.unk_token_id not in ids:
                    rows.setdefault(len(ids), []).append(np.array(ids, dtype=np.int16))
            chunk.clear()

        for sentence in sentences:
            chunk.append(sentence)
            if len(chunk) == _CHUNK:
                flush()
        flush()
        return cls({n: torch.from_numpy(np.stack(r)).to(device) for n, r in sorted(rows.items())})

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return sum(len(group) for group in self.groups.values())

    @property
    def tokens(self) -> int:
        """Number of tokens, without start and end tokens."""
        return sum(len(group) * (length - 2) for length, group in self.groups.items())

    def part(self, share: float) -> Corpus:
        """Return the first `share` of each length, to measure the effect of more text."""
        return Corpus({n: g[: max(1, int(share * len(g)))] for n, g in self.groups.items()})

    def batches(self, tokens: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield batches of one length and about `tokens` tokens, endlessly, in random order."""
        while True:
            plan: list[tuple[int, Tensor]] = []
            for length, group in self.groups.items():
                order = torch.randperm(len(group), generator=generator)
                plan += [(length, rows) for rows in order.split(max(1, tokens // length))]
            for index in torch.randperm(len(plan), generator=generator).tolist():
                length, rows = plan[index]
                yield self.groups[length][rows.to(self.groups[length].device)].long()
