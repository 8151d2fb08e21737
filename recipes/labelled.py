"""Folders of labelled lines: one file per label, such as positive.txt and negative.txt.xz.

python -m recipes.labelled FOLDER OUT --words 8:40 --most 120000    # a smaller folder
"""

from __future__ import annotations

import argparse
import lzma
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recipes.vocabulary import read_sentences

LONGEST = 126  # tokens, without the frame
_CHUNK = 50_000

Lines = dict[str, list[str]]


def read_folder(folder: Path, words: tuple[int, int] | None = None) -> Lines:
    """Return the lines of each label, labels sorted; `words` are the fewest and most of a line."""
    if not folder.is_dir():
        raise SystemExit(f"'{folder}' is not a folder")
    files = [file for file in sorted(folder.iterdir()) if file.name.endswith((".txt", ".txt.xz"))]
    low, high = words or (1, 10**9)
    lines: Lines = {}
    for file in files:
        label = file.name.removesuffix(".xz").removesuffix(".txt")
        if label in lines:
            raise SystemExit(f"'{folder}' has two files for the label '{label}'")
        kept = (" ".join(line.split()) for line in read_sentences(file))
        lines[label] = [line for line in kept if low <= len(line.split()) <= high]
        if not lines[label]:
            raise SystemExit(f"'{file}' has no usable line")
    if not lines:
        raise SystemExit(f"'{folder}' has no .txt or .txt.xz file; give one per label")
    return lines


def hold_out(lines: Lines, count: int, seed: int) -> tuple[Lines, Lines]:
    """Return training lines and `count` held-out lines of each label, at most a fifth of them."""
    kept: Lines = {}
    held: Lines = {}
    for label, texts in lines.items():
        shuffled = list(texts)
        random.Random(f"{seed} {label}").shuffle(shuffled)
        number = min(count, len(shuffled) // 5)
        held[label], kept[label] = shuffled[:number], shuffled[number:]
    return kept, held


@dataclass(frozen=True)
class Batch:
    """Framed sentences of one length, with the index of each one's label."""

    ids: Tensor
    labels: Tensor


class LabelledCorpus:
    """All sentences of each length as one matrix, with their labels; on the device."""

    def __init__(self, groups: dict[int, Batch]) -> None:
        self.groups = groups

    @classmethod
    def of(cls, lines: Lines, tokenizer: Any, device: torch.device) -> LabelledCorpus:
        """Tokenise; drop lines that are too long or have unknown words."""
        rows: dict[int, list[Any]] = {}
        labels: dict[int, list[int]] = {}
        for index, texts in enumerate(lines.values()):
            for begin in range(0, len(texts), _CHUNK):
                chunk = texts[begin : begin + _CHUNK]
                for encoding in tokenizer.backend_tokenizer.encode_batch(chunk):
                    ids = encoding.ids
                    if 1 <= len(ids) - 2 <= LONGEST and tokenizer.unk_token_id not in ids:
                        rows.setdefault(len(ids), []).append(ids)
                        labels.setdefault(len(ids), []).append(index)
        groups = {
            length: Batch(
                torch.from_numpy(np.array(rows[length], dtype=np.int32)).to(device),
                torch.tensor(labels[length], device=device),
            )
            for length in sorted(rows)
        }
        return cls(groups)

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return sum(len(group.ids) for group in self.groups.values())

    @property
    def tokens(self) -> int:
        """Number of tokens, without start and end tokens."""
        return sum(len(group.ids) * (length - 2) for length, group in self.groups.items())

    def counts(self, labels: int) -> Tensor:
        """Return the number of sentences of each label."""
        every = torch.cat([group.labels for group in self.groups.values()])
        return torch.bincount(every, minlength=labels)

    def steps(self, tokens: int) -> int:
        """Return the number of batches in one epoch."""
        return sum(
            -(-len(group.ids) // max(1, tokens // length)) for length, group in self.groups.items()
        )

    def epoch(self, tokens: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Yield every sentence once; in random order if there is a generator."""
        plan: list[tuple[int, Tensor]] = []
        for length, group in self.groups.items():
            count = len(group.ids)
            order = (
                torch.arange(count)
                if generator is None
                else torch.randperm(count, generator=generator)
            )
            plan += [
                (length, part.to(group.ids.device))
                for part in order.split(max(1, tokens // length))
            ]
        order = (
            range(len(plan))
            if generator is None
            else torch.randperm(len(plan), generator=generator).tolist()
        )
        for index in order:
            length, part = plan[index]
            group = self.groups[length]
            yield Batch(group.ids[part].long(), group.labels[part])

    def batches(self, tokens: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield batches of one length and about `tokens` tokens, endlessly, in random order."""
        while True:
            yield from self.epoch(tokens, generator)


def word_range(text: str) -> tuple[int, int]:
    """Read a range such as 8:40."""
    low, _, high = text.partition(":")
    return int(low), int(high)


def dropouts(config: Any) -> Sequence[str]:
    """Return the names of a configuration's dropout probabilities."""
    return [
        name
        for name, value in config.to_dict().items()
        if ("dropout" in name or name.endswith("_pdrop"))
        and (value is None or isinstance(value, float | int))
    ]


def write_folder(lines: Lines, folder: Path) -> None:
    """Write one compressed file per label."""
    folder.mkdir(parents=True, exist_ok=True)
    for label, texts in lines.items():
        with lzma.open(folder / f"{label}.txt.xz", "wt", encoding="utf-8") as file:
            file.writelines(text + "\n" for text in texts)


def main(arguments: list[str] | None = None) -> None:
    """Write a smaller folder: the same number of random lines of each label."""
    parser = argparse.ArgumentParser(description="Choose random lines of each label.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--words", type=word_range, help="fewest and most words, such as 8:40")
    parser.add_argument("--most", type=int, default=10**9, help="lines of each label")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    lines = read_folder(given.folder, given.words)
    count = min(given.most, *(len(texts) for texts in lines.values()))
    for label, texts in lines.items():
        lines[label] = random.Random(f"{given.seed} {label}").sample(texts, count)
    write_folder(lines, given.out)
    print(f"{given.out}: {count:,} lines of each of {', '.join(lines)}")


if __name__ == "__main__":
    main()
