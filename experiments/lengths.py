"""How many target words there are for a source word, by the length of the source.

    python -m experiments.lengths PAIRS TESTS --out FILE

compares the training pairs of `recipes.translation.pairs` with a test set: where a corpus was cut
at a number of words, long sources keep short targets. `--cut` shows what is left after the rule of
that recipe, whether or not PAIRS was made with it.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from recipes.translation.corpus import read_lines
from recipes.translation.pairs import LET_THROUGH, short_for_its_source

EDGES = (1, 8, 12, 16, 20, 24, 28, 32, 48, 200)


def ratios(pairs: list[tuple[str, str]]) -> list[dict[str, float]]:
    """Return, for each range of source lengths, the pairs in it and target words a source word."""
    words = np.array([[len(side.split()) for side in pair] for pair in pairs])
    rows = []
    for low, high in pairwise(EDGES):
        of_it = words[(words[:, 0] >= low) & (words[:, 0] < high)]
        if len(of_it):
            source, target = of_it.sum(0).tolist()
            row = {"from": low, "below": high, "pairs": len(of_it), "ratio": target / source}
            rows.append({name: round(value, 3) for name, value in row.items()})
    return rows


def read(source: Path, target: Path) -> list[tuple[str, str]]:
    """Read a pair of files."""
    return list(zip(read_lines(source), read_lines(target), strict=True))


def main(arguments: list[str] | None = None) -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    train = read(given.pairs / "de-en.train.src.xz", given.pairs / "de-en.train.tgt.xz")
    languages = given.name.rsplit(".", 1)[1]
    tests = (given.tests / f"{given.name}.{side}" for side in (languages[:2], languages[2:]))
    found = {"train": ratios(train), given.name: ratios(read(*tests))}
    if given.cut:
        most = LET_THROUGH["de-en"]
        found["train, cut"] = ratios([p for p in train if not short_for_its_source(p, most)])
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    for name, rows in found.items():
        print(name, *(f"{row['from']}-{row['below'] - 1}: {row['ratio']:.3f}" for row in rows))


if __name__ == "__main__":
    main()
