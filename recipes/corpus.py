"""Tokenised sentences grouped by length, so that batches need no padding.

    python -m recipes.corpus SENTENCES FILE.xz --tokenizer MODEL --exclude HELD_OUT ...

writes them as one compressed stream of tokens, to carry elsewhere, without those held out.
"""

from __future__ import annotations

import argparse
import lzma
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
# A large window and no literal context: tokens have two bytes each.
_FILTERS = [
    {
        "id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": 1, "pb": 1, "dict_size": 1 << 28,
    }
]  # fmt: skip


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
    def load(cls, file: Path, device: torch.device) -> Corpus:
        """Read what `save` wrote: the sentences of each length, one length after the other."""
        stream = np.frombuffer(lzma.decompress(file.read_bytes()), dtype=np.int16)
        end = stream[-1]  # every sentence ends with the same token
        lengths = np.diff(np.flatnonzero(stream == end), prepend=-1)
        groups, begin = {}, 0
        for length in np.unique(lengths).tolist():
            size = int((lengths == length).sum()) * length
            rows = stream[begin : begin + size].reshape(-1, length).copy()
            groups[length] = torch.from_numpy(rows).to(device)
            begin += size
        return cls(groups)

    def save(self, file: Path) -> None:
        """Write the tokens of all sentences as one stream, short sentences first."""
        groups = [self.groups[length].flatten() for length in sorted(self.groups)]
        tokens = torch.cat(groups).cpu().numpy().tobytes()
        file.write_bytes(lzma.compress(tokens, filters=_FILTERS))

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
    parser.add_argument("file", type=Path, help="file to write, FILE.xz")
    parser.add_argument("--tokenizer", default="wiki-small", help="model whose tokenizer is used")
    parser.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="sentences to leave out"
    )
    given = parser.parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(source_of(given.tokenizer, "masked"))
    excluded = {line for file in given.exclude for line in read_sentences(file)}
    kept = (line for line in read_sentences(given.sentences) if line not in excluded)
    corpus = Corpus.of(kept, tokenizer, torch.device("cpu"))
    corpus.save(given.file)
    print(f"{corpus.sentences:,} sentences, {corpus.tokens:,} tokens")


if __name__ == "__main__":
    main()
