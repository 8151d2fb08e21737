"""Train several configurations for the same time and compare them on held-out text.

    python -m recipes.compare SENTENCES HELD_OUT --out FOLDER --seconds 45

Writes FOLDER/configurations.json and prints a table. Log-loss per token is comparable within one
vocabulary, log-loss per word between all.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from maskov.models import HuggingFaceModel
from recipes.corpus import Corpus
from recipes.measure import masked_quality
from recipes.networks import SHAPES, build
from recipes.train import Recipe, loss_of
from recipes.trainer import Trainer
from recipes.vocabulary import obtain, read_sentences

BASE = Recipe(mask_share=0.3)
# Vocabulary, recipe and share of the text. Each changes one thing, and what must follow from it:
# post-norm blocks need half the learning rate, a larger vocabulary leaves room for less depth.
CONFIGURATIONS: dict[str, tuple[int, Recipe, float]] = {
    "base": (8192, BASE, 1.0),
    "BERT block": (8192, replace(BASE, shape="bert-384x5", rate=1e-3), 1.0),
    "mask 15 %": (8192, replace(BASE, mask_share=0.15), 1.0),
    "mask 40 %": (8192, replace(BASE, mask_share=0.4), 1.0),
    "rate 4e-3": (8192, replace(BASE, rate=4e-3), 1.0),
    "deeper, narrower": (8192, replace(BASE, shape="modern-320x8"), 1.0),
    "wider, shallower": (8192, replace(BASE, shape="modern-512x3"), 1.0),
    "vocabulary 16 k": (16384, replace(BASE, shape="modern-320x6"), 1.0),
    "tenth of the text": (8192, BASE, 0.1),
}


def parameters(network: Any) -> int:
    """Count the weights."""
    return sum(weight.numel() for weight in network.parameters())


def main(arguments: list[str] | None = None) -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--only", nargs="*", choices=list(CONFIGURATIONS))
    parser.add_argument("--shape", choices=sorted(SHAPES), help="for every one, as a quick check")
    parser.add_argument("--vocabulary", type=int, help="for every one, as a quick check")
    parser.add_argument("--batch-tokens", type=int, default=BASE.batch_tokens)
    parser.add_argument("--most", type=int)
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    given.out.mkdir(parents=True, exist_ok=True)
    # Selected by words, so that all vocabularies are measured on the same sentences.
    short = [s for s in read_sentences(given.held_out) if 6 <= len(s.split()) <= 30]
    held_out = short[:1500]
    loaded: dict[int, tuple[Any, Corpus]] = {}
    rows: list[dict[str, Any]] = []
    for name, (usual, recipe, share) in CONFIGURATIONS.items():
        if given.only and name not in given.only:
            continue
        size = given.vocabulary or usual
        recipe = replace(recipe, batch_tokens=given.batch_tokens, shape=given.shape or recipe.shape)
        if size not in loaded:
            kept = given.out / f"tokenizer-{size}"
            tokenizer = obtain(kept, given.sentences, size, given.most)
            corpus = Corpus.of(read_sentences(given.sentences, given.most), tokenizer, device)
            print(f"vocabulary {size}: {corpus.tokens:,} tokens", flush=True)
            loaded[size] = tokenizer, corpus
        tokenizer, corpus = loaded[size]
        torch.manual_seed(recipe.seed)
        network = build(SHAPES[recipe.shape], tokenizer)
        trainer = Trainer(network, loss_of(network, recipe, tokenizer), recipe, device)
        generator = torch.Generator().manual_seed(recipe.seed)
        trainer.run(corpus.part(share).batches(recipe.batch_tokens, generator), given.seconds)
        model = HuggingFaceModel(trainer.network, tokenizer, name)
        last = masked_quality(model, held_out)
        trainer.use_average()
        mean = masked_quality(model, held_out)
        row = {
            "name": name,
            "vocabulary": size,
            "recipe": asdict(recipe),
            "share": share,
            "parameters": parameters(trainer.network),
            "seconds": given.seconds,
            "steps": trainer.step,
            "last": last,
            "averaged": mean,
        }
        rows.append(row)
        print(
            f"{name:20s} {row['parameters'] / 1e6:5.1f} M {trainer.step:6d} steps  "
            f"loss {last['log_loss']:.4f} averaged {mean['log_loss']:.4f} "
            f"per word {mean['log_loss_per_word']:.4f} top-1 {mean['top_1']:.4f}",
            flush=True,
        )
        (given.out / "configurations.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
