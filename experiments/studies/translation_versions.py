"""Time translation with whichever version of maskov is on the path, to compare two commits.

    git worktree add OLD c129def
    PYTHONPATH=OLD/src python translation_versions.py MODEL SOURCES --out old.json
    PYTHONPATH=src python translation_versions.py MODEL SOURCES --out new.json

c129def is the last commit whose passes of a translation model were padded. Only what both versions
have is used. The chains of `mh raw` accept every proposal for the first eight of 33 epochs. Each
method warms up first; the time is that of one whole call.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maskov.models import load
from maskov.translation.api import translate_lines
from maskov.translation.methods import TranslationMethod

METHODS = {
    "mh raw": TranslationMethod("mh", energy="raw", force_accept=8),
    "mask-predict": TranslationMethod("mask-predict", iterations=10, length_beam=1),
    "mask-predict, 5 lengths": TranslationMethod("mask-predict", iterations=10, length_beam=5),
}
_WARM_UP_EPOCHS = 9


def main(arguments: list[str] | None = None) -> None:
    """Time each method and write the speeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a translation model")
    parser.add_argument("sources", type=Path, help="file of sentences, one per line")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    model: Any = load(options.model, options.device, options.precision)
    lines = options.sources.read_text(encoding="utf-8").splitlines()[: options.sentences]
    rows: dict[str, dict[str, float]] = {}
    for name, method in METHODS.items():
        first = replace(method, epochs=_WARM_UP_EPOCHS) if name == "mh raw" else method
        translate_lines(model, lines, first)
        begin = time.perf_counter()
        translate_lines(model, lines, method)
        if options.device.startswith("cuda"):
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        rows[name] = {"seconds": seconds, "sentences_per_second": len(lines) / seconds}
        results = {
            "model": Path(options.model).name,
            "sources": options.sources.name,
            "sentences": len(lines),
            "precision": options.precision,
            "torch": torch.__version__,
            "rows": rows,
        }
        options.out.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name:24s} {len(lines) / seconds:10.2f} sentences/s", flush=True)


if __name__ == "__main__":
    main()
