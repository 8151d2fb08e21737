"""How many target words there are for a source word, by the length of the source.

    python -m experiments.studies.lengths.ratios PAIRS TESTS --out FILE

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
    """Return the number of pairs and the target/source ratio of words by source length."""
    words = np.array([[len(side.split()) for side in pair] for pair in pairs])
    rows = []
    for low, high in pairwise(EDGES):
        selected = words[(words[:, 0] >= low) & (words[:, 0] < high)]
        if len(selected):
            source, target = selected.sum(0).tolist()
            row = {"from": low, "below": high, "pairs": len(selected), "ratio": target / source}
            rows.append({name: round(value, 3) for name, value in row.items()})
    return rows


def read(source: Path, target: Path) -> list[tuple[str, str]]:
    """Read a pair of files."""
    return list(zip(read_lines(source), read_lines(target), strict=True))


def main(arguments: list[str] | None = None) -> None:
    """Compare the length ratios of training pairs and a test set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    train = read(options.pairs / "de-en.train.src.xz", options.pairs / "de-en.train.tgt.xz")
    languages = options.name.rsplit(".", 1)[1]
    tests = (options.tests / f"{options.name}.{side}" for side in (languages[:2], languages[2:]))
    by_set = {"train": ratios(train), options.name: ratios(read(*tests))}
    if options.cut:
        most = LET_THROUGH["de-en"]
        by_set["train, cut"] = ratios([p for p in train if not short_for_its_source(p, most)])
    options.out.write_text(json.dumps(by_set, indent=1) + "\n")
    for name, rows in by_set.items():
        print(name, *(f"{row['from']}-{row['below'] - 1}: {row['ratio']:.3f}" for row in rows))


if __name__ == "__main__":
    main()
