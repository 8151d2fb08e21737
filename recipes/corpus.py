"""Tokenised sentences grouped by length, so that batches need no padding.

    python -m recipes.corpus SENTENCES FOLDER --tokenizer MODEL --parts 2

writes them as compressed arrays, in several files of about the same size, to carry elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer

from maskov.shipped import source_of
from recipes.vocabulary import read_sentences

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
            for encoding in tokenizer.backend_tokenizer.encode_batch(chunk):
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

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> Corpus:
        """Read what `save` wrote."""
        groups: dict[int, list[Tensor]] = {}
        for file in sorted(folder.glob("*.npz")):
            with np.load(file) as arrays:
                for name in arrays.files:
                    groups.setdefault(int(name), []).append(torch.from_numpy(arrays[name]))
        return cls({n: torch.cat(parts).to(device) for n, parts in sorted(groups.items())})

    def save(self, folder: Path, parts: int = 1) -> None:
        """Write the sentences of each length, spread over so many files."""
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(parts):
            arrays = {str(n): group[part::parts].cpu().numpy() for n, group in self.groups.items()}
            np.savez_compressed(folder / f"part{part}.npz", **arrays)

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


def main(arguments: list[str] | None = None) -> None:
    """Tokenise a file of sentences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", default="wiki-small", help="model whose tokenizer is used")
    parser.add_argument("--parts", type=int, default=1)
    given = parser.parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(source_of(given.tokenizer, "masked"))
    corpus = Corpus.of(read_sentences(given.sentences), tokenizer, torch.device("cpu"))
    corpus.save(given.folder, given.parts)
    print(f"{corpus.sentences:,} sentences, {corpus.tokens:,} tokens")


if __name__ == "__main__":
    main()
