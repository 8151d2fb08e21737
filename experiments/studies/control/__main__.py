"""Sentiment rewriting on Yelp against the published systems.

    python -m experiments.studies.control prepare DATA WORK     # split the lines
    python -m experiments.studies.control train WORK            # on a GPU, about 8 minutes
    python -m experiments.studies.control rewrite WORK SETTINGS OUT
    python -m experiments.studies.control rerank WORK OUT NAME WEIGHT # pick by a third classifier
    python -m experiments.studies.control page DATA WORK OUT --results FOLDER --chosen NAME

DATA and everything in WORK stay out of the repository: the text has no licence.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(
        prog="experiments.studies.control", description=__doc__.splitlines()[0]
    )
    steps = parser.add_subparsers(dest="step", required=True)
    prepare = steps.add_parser("prepare", help="split the lines")
    prepare.add_argument("data", type=Path)
    prepare.add_argument("work", type=Path)
    train = steps.add_parser("train", help="train all models, on a GPU")
    train.add_argument("work", type=Path)
    train.add_argument("--quick", action="store_true", help="toy sizes, to try it on a CPU")
    train.add_argument("--base", default="wiki-small", help="masked LM to adapt")
    rewrite = steps.add_parser("rewrite", help="rewrite lines by a JSON list of settings")
    rewrite.add_argument("work", type=Path)
    rewrite.add_argument("settings", type=Path)
    rewrite.add_argument("out", type=Path)
    rewrite.add_argument("--test", type=int, help="test lines of each label (default: all)")
    rewrite.add_argument("--held", type=int, default=100, help="held-out lines of each label")
    rewrite.add_argument("--seed", type=int, default=0)
    page = steps.add_parser("page", help="score all systems and write the page")
    page.add_argument("data", type=Path)
    page.add_argument("work", type=Path)
    page.add_argument("out", type=Path)
    page.add_argument("--results", type=Path, required=True, help="what `rewrite` wrote")
    page.add_argument("--chosen", required=True, help="setting chosen on held-out lines")
    page.add_argument("--evaluator", type=Path, help="yelp_eval.py (default: DATA/../../tools)")
    rerank = steps.add_parser("rerank", help="pick by a third classifier, too")
    rerank.add_argument("work", type=Path)
    rerank.add_argument("out", type=Path)
    rerank.add_argument("name")
    rerank.add_argument("weight", type=float)
    given = parser.parse_args(arguments)
    # What a step needs is imported for it alone: the GPU machine has no matplotlib.
    if given.step == "prepare":
        from experiments.studies.control.data import prepare as split

        split(given.data, given.work)
    elif given.step == "train":
        from dataclasses import replace

        from experiments.studies.control.train import QUICK, Plan, train as run

        run(given.work, replace(QUICK if given.quick else Plan(), base=given.base))
    elif given.step == "rewrite":
        from experiments.studies.control import rewriting

        rewriting.rewrite_all(
            given.work,
            rewriting.Setting.read(given.settings),
            rewriting.published_lines(given.work, given.test),
            rewriting.held_lines(given.work, given.held),
            given.out,
            given.seed,
        )
    elif given.step == "page":
        from experiments.studies.control.page import write_page

        write_page(given.data, given.work, given.out, given.results, given.chosen, given.evaluator)
    else:
        from experiments.studies.control.reranking import rerank as pick

        pick(given.work, given.out, given.name, given.weight)


if __name__ == "__main__":
    main()
