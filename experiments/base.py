"""Train a masked LM as large as BERT-base, then reproduce the unconditional tables with it at once.

    python -m experiments.base SENTENCES --weights FOLDER --out DIR --minutes 15

SENTENCES is what `recipes.clean` writes, plain or .xz; a tokenizer is learned from it unless one is
given. Weights stay in FOLDER and need not be kept: results name them by their hash. Stopped at any
time, the same command goes on: training from its last checkpoint, tables from their last cell.
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
from experiments.driver import report, reproduce
from experiments.registry import RESULTS
from experiments.settings import SETTINGS
from experiments.workshop import Workshop, called
from maskov.models import device_name
from maskov.runs.files import write_atomically
from recipes import train

TABLES = ("table2", "table6", "table4")


def trained(given: argparse.Namespace) -> Path:
    """Train, or go on training, until the time is up; return the folder of the model."""
    model = given.weights / "model"
    if not (model / "config.json").is_file():
        words = ["masked", str(given.sentences), "--out", str(given.weights), "--keep"]
        for option in ("minutes", "shape", "rate", "vocabulary", "batch_tokens", "seed"):
            words += [f"--{option.replace('_', '-')}", str(getattr(given, option))]
        for option in ("steps", "tokenizer", "most"):
            if getattr(given, option) is not None:
                words += [f"--{option}", str(getattr(given, option))]
        train.main(words)
    return model


def measured(model: Path, given: argparse.Namespace) -> None:
    """Write what the training came to, once."""
    file = given.out / "training.json"
    if file.exists():
        return
    log = json.loads((given.weights / "log.json").read_text(encoding="utf-8"))
    loaded = maskov.load(model, given.device)
    assert isinstance(loaded, maskov.HuggingFaceModel)
    found = {
        "shape": given.shape,
        "parameters": sum(weight.numel() for weight in loaded.network.parameters()),
        "fingerprint": loaded.fingerprint(),
        "device": device_name(loaded.device),
        "held_out": None,
        **log,
    }
    if given.held_out is not None:
        texts = list(read_sentences(given.held_out, given.held_out_most))
        found["held_out"] = masked_quality(loaded, texts)
    write_atomically(file, json.dumps(found, indent=1).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and reproduce."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--weights", type=Path, required=True, help="folder of the training")
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--minutes", type=float, default=15.0, help="of training, in all")
    parser.add_argument("--steps", type=int, help="of training, instead of --minutes")
    parser.add_argument("--shape", choices=sorted(SHAPES | LARGE), default="modern-768x12")
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--most", type=int, help="use only so many sentences")
    parser.add_argument("--held-out", type=Path, help="sentences to measure the model on")
    parser.add_argument("--held-out-most", type=int, default=1000)
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="base")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="cells at once, a process each")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    model = trained(given)
    measured(model, given)
    named = called(given.shape, model)
    workshop = Workshop(
        SETTINGS[given.setting], given.out, device=given.device, models={"base": named}
    )
    results = [RESULTS[name] for name in TABLES]
    reproduce(
        results, workshop, wanted=lambda work: not work.translates, lenient=True, jobs=given.jobs
    )
    report(given.out, partly=True)


if __name__ == "__main__":
    main()
