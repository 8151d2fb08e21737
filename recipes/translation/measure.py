"""Measure BLEU of an autoregressive model on test sets.

    python -m recipes.translation.measure MODEL TESTS --sets NAME...

TESTS is a folder of NAME.LANGUAGE files, such as europarl.dev.deen.de.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from maskov.evaluation import compare
from recipes.translation.corpus import read_lines
from recipes.translation.distil import load_twin, translate_lines

SETS = ("europarl.dev.deen", "newstest2014.deen", "newstest2016.roen")


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the files of the sources and of the references."""
    languages = name.rsplit(".", 1)[1]
    return folder / f"{name}.{languages[:2]}", folder / f"{name}.{languages[2:]}"


def main(arguments: list[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--length-power", type=float, default=1.0, help="larger: longer outputs")
    parser.add_argument("--most", type=int, help="maximum sentences of each set")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    twin = load_twin(given.model)
    found = {}
    for name in given.sets:
        sources, references = (
            read_lines(file)[: given.most] for file in files_of(given.tests, name)
        )
        begun = time.monotonic()
        longest = twin.network.shape.longest
        lines = translate_lines(
            twin, sources, given.beam, longest=longest, length_power=given.length_power
        )
        spent = time.monotonic() - begun
        score = compare([line or "" for line in lines], references)
        found[name] = {**asdict(score), "beam": given.beam,
                       "length_power": given.length_power, "seconds": spent}  # fmt: skip
        print(
            name,
            given.beam,
            f"BLEU {score.bleu:.2f} chrF {score.chrf:.2f} {spent:.1f} s",
            flush=True,
        )
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
