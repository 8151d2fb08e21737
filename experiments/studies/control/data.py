"""The Yelp lines: which are trained on, by which model, and which are held out."""

from __future__ import annotations

import lzma
import random
from pathlib import Path

from recipes.labelled import Lines, read_folder, write_folder

LABELS = ("negative", "positive")  # of train.0 and train.1, test.0 and test.1
HELD_OUT = 2000  # lines of each label
SEED = 18


def prepare(data: Path, work: Path) -> None:
    """Split train.* into two halves for classifiers and the held-out lines.

    Classifiers of energies learn from half a, the one that we tune with from half b. The masked LM
    and the judge of fluency learn from both. Nobody learns from the held-out lines.
    """
    parts: dict[str, Lines] = {"half-a": {}, "half-b": {}, "held": {}}
    for index, label in enumerate(LABELS):
        with lzma.open(data / f"train.{index}.txt.xz", "rt", encoding="utf-8") as file:
            lines = [" ".join(line.split()) for line in file]
        random.Random(f"{SEED} {label}").shuffle(lines)
        held, rest = lines[:HELD_OUT], lines[HELD_OUT:]
        middle = len(rest) // 2
        parts["held"][label] = held
        parts["half-a"][label], parts["half-b"][label] = rest[:middle], rest[middle:]
    (work / "test").mkdir(parents=True, exist_ok=True)
    for index in range(len(LABELS)):
        name = f"test.{index}.txt"
        (work / "test" / name).write_bytes((data / name).read_bytes())
    for name, part in parts.items():
        write_folder(part, work / "lines" / name)
        counts = ", ".join(f"{len(texts):,} {label}" for label, texts in part.items())
        print(f"{work / 'lines' / name}: {counts}")


def lines_of(work: Path, *parts: str) -> Lines:
    """Return the lines of one part or several."""
    folders = [read_folder(work / "lines" / part) for part in parts]
    return {label: [text for lines in folders for text in lines[label]] for label in LABELS}
