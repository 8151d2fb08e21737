"""BLEU of translation methods on long sentences, from stored texts.

    python -m experiments.long_sentences TEXTS TESTS --above 40

scores the sentences of TEXTS (such as results/translation/methods-europarl-200.txt) whose
reference has more than 40 words. Nothing is translated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from maskov.evaluation.translation import TranslationScores, compare


def read_rows(text: str) -> dict[str, list[str]]:
    """Return the translations of each method."""
    blocks = (block.removesuffix("\n").split("\n") for block in f"\n{text}".split("\n== ")[1:])
    return {name: lines for name, *lines in blocks}


def scores(
    rows: dict[str, list[str]], references: list[str], above: int
) -> dict[str, TranslationScores]:
    """Score the translations whose reference is long."""
    long = [n for n, reference in enumerate(references) if len(reference.split()) > above]
    return {
        name: compare([lines[n] for n in long], [references[n] for n in long])
        for name, lines in rows.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Print one line per method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("tests", type=Path)
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--above", type=int, default=40)
    options = parser.parse_args(arguments)
    rows = read_rows(options.texts.read_text(encoding="utf-8"))
    language = options.name.rsplit(".", 1)[1][2:]
    most = max(map(len, rows.values()))
    file = options.tests / f"{options.name}.{language}"
    references = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")[:most]
    for name, score in scores(rows, references, options.above).items():
        interval = "" if score.bleu_interval is None else f" ± {score.bleu_interval:.1f}"
        print(f"{name:28s} BLEU {score.bleu:.1f}{interval}, {score.sentences} sentences")


if __name__ == "__main__":
    main()
