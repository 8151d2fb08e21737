"""How the ways to translate do on long sentences, from the texts that `translation` kept.

    python -m experiments.longer results/translation/methods-europarl-200.txt TESTS --above 40

scores again, by BLEU, those whose reference has more words than that; nothing is translated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.translation import read
from maskov.evaluation.translation import Translation, compare


def blocks(text: str) -> dict[str, list[str]]:
    """Return the translations of each row."""
    found = (block.removesuffix("\n").split("\n") for block in f"\n{text}".split("\n== ")[1:])
    return {name: lines for name, *lines in found}


def scores(rows: dict[str, list[str]], references: list[str], above: int) -> dict[str, Translation]:
    """Score the translations of long references."""
    long = [n for n, reference in enumerate(references) if len(reference.split()) > above]
    return {
        name: compare([lines[n] for n in long], [references[n] for n in long])
        for name, lines in rows.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--above", type=int, default=40)
    given = parser.parse_args(arguments)
    rows = blocks(given.texts.read_text(encoding="utf-8"))
    language = given.name.rsplit(".", 1)[1][2:]
    most = max(map(len, rows.values()))
    references = read(given.tests / f"{given.name}.{language}", most)
    for name, score in scores(rows, references, given.above).items():
        interval = "" if score.bleu_interval is None else f" ± {score.bleu_interval:.1f}"
        print(f"{name:28s} BLEU {score.bleu:.1f}{interval}, {score.sentences} sentences")


if __name__ == "__main__":
    main()
