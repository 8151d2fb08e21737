"""Train a masked LM of the size of BERT-base, then reproduce the unconditional tables with it.

    python -m experiments.studies.bert_base SENTENCES --weights FOLDER --out DIR --minutes 15

SENTENCES is a file written by `recipes.clean`, plain or .xz; a tokenizer is learned from it unless
--tokenizer is given. FOLDER may be deleted afterwards: results name the weights by their hash.
Run the same command to continue after an interruption: training resumes from its last checkpoint,
and finished cells are kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from recipes.measure import masked_quality
from recipes.networks import LARGE, SHAPES
from recipes.vocabulary import read_sentences

import maskov
from experiments.lib.context import Context, link_as, model_weights_hash
from experiments.lib.settings import SETTINGS
from experiments.paper.driver import report, reproduce
from experiments.paper.registry import RESULTS
from maskov.models import device_name
from maskov.runs.files import write_atomically
from recipes import train

TABLES = ("table2", "table6", "table4")


def train_model(options: argparse.Namespace) -> Path:
    """Train, or resume training; return the folder of the model."""
    model = options.weights / "model"
    if not (model / "config.json").is_file():
        arguments = ["masked", str(options.sentences), "--out", str(options.weights), "--keep"]
        for name in ("minutes", "shape", "rate", "vocabulary", "batch_tokens", "seed"):
            arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        for name in ("steps", "tokenizer", "most"):
            if getattr(options, name) is not None:
                arguments += [f"--{name}", str(getattr(options, name))]
        train.main(arguments)
    return model


def write_record(model: Path, options: argparse.Namespace) -> None:
    """Write the training record, unless it exists."""
    file = options.out / "training.json"
    if file.exists():
        return
    log = json.loads((options.weights / "log.json").read_text(encoding="utf-8"))
    loaded = maskov.load(model, options.device)
    assert isinstance(loaded, maskov.HuggingFaceModel)
    record = {
        "shape": options.shape,
        "parameters": sum(weight.numel() for weight in loaded.network.parameters()),
        "fingerprint": model_weights_hash(loaded),
        "device": device_name(loaded.device),
        "held_out": None,
        **log,
    }
    if options.held_out is not None:
        texts = list(read_sentences(options.held_out, options.held_out_most))
        record["held_out"] = masked_quality(loaded, texts)
    write_atomically(file, json.dumps(record, indent=1).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the model and reproduce the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--weights", type=Path, required=True, help="folder for the training")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=15.0, help="minutes of training")
    parser.add_argument("--steps", type=int, help="steps of training, instead of --minutes")
    parser.add_argument("--shape", choices=sorted(SHAPES | LARGE), default="modern-768x12")
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--most", type=int, help="maximum number of sentences")
    parser.add_argument("--held-out", type=Path, help="file of sentences to evaluate the model on")
    parser.add_argument("--held-out-most", type=int, default=1000)
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="base")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that run cells")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    model = train_model(options)
    write_record(model, options)
    context = Context(
        SETTINGS[options.setting],
        options.out,
        device=options.device,
        models={"base": link_as(options.shape, model)},
    )
    results = [RESULTS[name] for name in TABLES]
    reproduce(
        results,
        context,
        include=lambda cell: not cell.translates,
        skip_missing=True,
        jobs=options.jobs,
    )
    report(options.out)


if __name__ == "__main__":
    main()
