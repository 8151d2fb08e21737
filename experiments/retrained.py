"""Train the masked translation model in another way, then reproduce Figure 1 and Table 1 with it.

    python -m experiments.retrained PAIRS --title "trained beside right words only" --data TESTS \
        --weights FOLDER --out DIR -- --tokenizer TOKENIZER --weights TWIN --targets distilled ...

It asks what in a training makes degenerate Gibbs drift or not. What follows `--` are options of
`recipes.translation.train`. Weights stay in FOLDER and need not be kept: results name them by their
hash. Stopped at any time, the same command goes on. DIR/training.json tells how the model came
about, and its `title` is what the page of claims calls it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.translation import train

import maskov
from experiments.driver import report, reproduce
from experiments.registry import RESULTS
from experiments.settings import SETTINGS
from experiments.workshop import Workshop, called
from maskov.models.conditional.model import ConditionalModel
from maskov.runs.files import write_atomically

STUDIES = ("figure1", "table1")


def record(model: Path, given: argparse.Namespace) -> None:
    """Write how the model came about, once."""
    file = given.out / "training.json"
    if file.exists():
        return
    loaded = maskov.load(model, "cpu")
    assert isinstance(loaded, ConditionalModel)
    found = {
        "title": given.title,
        "parameters": sum(weight.numel() for weight in loaded.network.parameters()),
        "fingerprint": loaded.fingerprint(),
        **json.loads((given.weights / "log.json").read_text(encoding="utf-8")),
    }
    write_atomically(file, json.dumps(found, indent=1).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and reproduce."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, help="folder of recipes.translation.pairs")
    parser.add_argument("--title", required=True, help="what the page of claims calls the model")
    parser.add_argument("--weights", type=Path, required=True, help="folder of the training")
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--data", type=Path, help="folder of test sets")
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="full")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once, a process each")
    given = parser.parse_args(words[:cut])
    given.out.mkdir(parents=True, exist_ok=True)
    model = given.weights / "model"
    if not (model / "config.json").is_file():
        train.main(["masked", str(given.pairs), "--out", str(given.weights), *words[cut + 1 :]])
    record(model, given)
    named = called(given.out.resolve().name, model)
    workshop = Workshop(
        SETTINGS[given.setting], given.out, given.data, given.device, models={"de-en": named}
    )
    reproduce([RESULTS[name] for name in STUDIES], workshop, jobs=given.jobs)
    report(given.out, partly=True)


if __name__ == "__main__":
    main()
