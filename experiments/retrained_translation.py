"""Train the masked translation model with other options, then reproduce Figure 1 and Table 1.

    python -m experiments.retrained_translation PAIRS --title "trained beside right words only" \
        --data TESTS --weights FOLDER --out DIR -- --tokenizer TOKENIZER \
        --weights TWIN --targets distilled ...

This tests which part of the training makes degenerate Gibbs drift. Options after `--` go to
`recipes.translation.train`. FOLDER may be deleted afterwards: results name the weights by their
hash. Run the same command to continue after an interruption. DIR/training.json records the
training; its `title` is the model's name on the page of claims.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.translation import train

import maskov
from experiments.context import Context, link_as
from experiments.driver import report, reproduce
from experiments.registry import RESULTS
from experiments.settings import SETTINGS
from maskov.models.conditional.model import ConditionalModel
from maskov.models.fingerprints import model_weights_hash
from maskov.runs.files import write_atomically

STUDIES = ("figure1", "table1")


def write_record(model: Path, options: argparse.Namespace) -> None:
    """Write the training record, unless it exists."""
    file = options.out / "training.json"
    if file.exists():
        return
    loaded = maskov.load(model, "cpu")
    assert isinstance(loaded, ConditionalModel)
    record = {
        "title": options.title,
        "parameters": sum(weight.numel() for weight in loaded.network.parameters()),
        "fingerprint": model_weights_hash(loaded),
        **json.loads((options.weights / "log.json").read_text(encoding="utf-8")),
    }
    write_atomically(file, json.dumps(record, indent=1).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the model and reproduce the studies."""
    all_arguments = list(sys.argv[1:] if arguments is None else arguments)
    split = all_arguments.index("--") if "--" in all_arguments else len(all_arguments)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, help="folder of recipes.translation.pairs")
    parser.add_argument("--title", required=True, help="name of the model on the page of claims")
    parser.add_argument("--weights", type=Path, required=True, help="folder for the training")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--data", type=Path, help="folder of test sets")
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="full")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run cells")
    options = parser.parse_args(all_arguments[:split])
    options.out.mkdir(parents=True, exist_ok=True)
    model = options.weights / "model"
    if not (model / "config.json").is_file():
        training_options = all_arguments[split + 1 :]
        train.main(["masked", str(options.pairs), "--out", str(options.weights), *training_options])
    write_record(model, options)
    name = link_as(options.out.resolve().name, model)
    context = Context(
        SETTINGS[options.setting], options.out, options.data, options.device, models={"de-en": name}
    )
    reproduce([RESULTS[study] for study in STUDIES], context, jobs=options.jobs)
    report(options.out, only_tested=True)


if __name__ == "__main__":
    main()
