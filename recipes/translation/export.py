"""Export a model for shipping: `python -m recipes.translation.export FOLDER models/NAME`.

Copies the folder and adds `about.json`, by which `maskov translate --pair` finds the model. The
numbers of `--quality` come from `recipes.translation.measure` or from Table 5 (`experiments`). The
card, README.md, must be written by hand.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch

from maskov.models.network import load_translation
from recipes.translation.train import PAIRS

LIMIT = 48 * 2**20


def export(folder: Path, out: Path, facts: str, quality: dict[str, float]) -> int:
    """Write the folder; return the size of its weights in bytes."""
    network, tokenizer = load_translation(folder, torch.device("cpu"), torch.float32)
    size = (folder / "model.safetensors").stat().st_size
    if size > LIMIT:
        raise SystemExit(f"{size:,} bytes of weights are more than the {LIMIT:,} we ship")
    out.mkdir(parents=True, exist_ok=True)
    for file in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / file, out / file)
    shape = network.shape
    twin = shape.causal
    about = {
        "name": out.name,
        "kind": "autoregressive" if twin else "translation",
        "summary": f"German and Romanian to English, {'left to right' if twin else 'masked'}; "
        f"{shape.encoder_layers} + {shape.decoder_layers} layers of {shape.width}, "
        f"{len(tokenizer)} subwords",
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "bytes": size,
        "training_data": facts,
        "licence": "weights CC BY-SA 4.0 (after the Romanian text), code Apache-2.0",
        "quality": quality,
        "pairs": list(PAIRS),
    }
    (out / "about.json").write_text(json.dumps(about, ensure_ascii=False) + "\n", encoding="utf-8")
    return size


def main(arguments: list[str] | None = None) -> None:
    """Export one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--facts", default="not recorded", help="what it was trained on")
    parser.add_argument("--quality", type=json.loads, default={}, help="numbers, as JSON")
    given = parser.parse_args(arguments)
    size = export(given.folder, given.out, given.facts, given.quality)
    print(f"{given.out}: {size:,} bytes of weights")


if __name__ == "__main__":
    main()
