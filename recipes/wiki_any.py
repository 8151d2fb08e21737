"""Train `wiki-any`: compare a few ways for seconds each, then train the best of them for long.

    python -m recipes.corpus sentences.txt tokens.xz --exclude valid.txt test.txt
    python -m recipes.wiki_any tokens.xz valid.txt --out any --minutes 16.5 --pause 7
    python -m recipes.wiki_any tokens.xz valid.txt --out any --minutes 16.5

The best has the lowest sum of two held-out losses: at one mask, and averaged over rates. The second
command continues the first. any/candidates.json has the comparison, any/log.json the training.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from maskov.shipped import source_of
from recipes import train
from recipes.corpus import Corpus
from recipes.networks import SHAPES, build
from recipes.train import Recipe, held_out_losses, loss_of
from recipes.trainer import Trainer
from recipes.vocabulary import obtain, read_sentences

BASE = Recipe(batch_tokens=65_536, any_rate=0.5, muon=2e-3)
CANDIDATES = {
    "AdamW": replace(BASE, muon=0.0),
    "Muon, 2e-3": BASE,
    "Muon, 4e-3": replace(BASE, muon=4e-3),
    "Muon, 4e-3, and AdamW, 4e-3": replace(BASE, muon=4e-3, rate=4e-3),
    "Muon, 4e-3, three quarters at any rate": replace(BASE, muon=4e-3, any_rate=0.75),
    "Muon, 4e-3, batches of half the size": replace(BASE, muon=4e-3, batch_tokens=32_768),
}


def main(arguments: list[str] | None = None) -> None:
    """Compare, then train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=Path)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, default=Path(source_of("wiki-small", "masked")))
    parser.add_argument("--seconds", type=float, default=22, help="of each candidate")
    parser.add_argument("--minutes", type=float, default=16.5)
    parser.add_argument("--pause", type=float, help="minutes of this call")
    parser.add_argument("--shape", choices=sorted(SHAPES), default=BASE.shape)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    compared = given.out / "candidates.json"
    if not compared.exists():
        compare(given, compared)
    losses = json.loads(compared.read_text())
    best = CANDIDATES[min(losses, key=lambda name: losses[name]["sum"])]
    words = [
        "masked", given.tokens, "--tokenised", "--held-out", given.held_out, "--out", given.out,
        "--tokenizer", given.tokenizer, "--shape", given.shape, "--precision", "bfloat16",
        "--rate", best.rate, "--muon", best.muon, "--any-rate", best.any_rate,
        "--batch-tokens", best.batch_tokens, "--minutes", given.minutes,
    ]  # fmt: skip
    words += ["--pause", given.pause] if given.pause else []
    train.main([*map(str, words), *(["--compile"] if given.compile else [])])


def compare(given: argparse.Namespace, out: Path) -> None:
    """Train every candidate for seconds and write its held-out losses."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan anew for each shape
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = obtain(given.tokenizer, given.tokens, 0)
    corpus = Corpus.load(given.tokens, device)
    held = Corpus.of(list(read_sentences(given.held_out))[:3000], tokenizer, device)
    found: dict[str, dict[str, float]] = {}
    for name, recipe in CANDIDATES.items():
        torch.manual_seed(recipe.seed)
        network = build(SHAPES[given.shape], tokenizer)
        loss = loss_of(network, recipe, tokenizer, given.compile)
        trainer = Trainer(network, loss, recipe, device, "bfloat16")
        batches = corpus.batches(recipe.batch_tokens, torch.Generator().manual_seed(0))
        trainer.try_out(next(batches))  # compiles
        trainer.run(batches, given.seconds)
        with trainer.averaged(), torch.no_grad():
            losses = held_out_losses(trainer.network, held, tokenizer.mask_token_id)
        rates = [loss for rate, loss in losses.items() if rate != "one"]
        found[name] = {
            "steps": trainer.step, **losses, "sum": losses["one"] + sum(rates) / len(rates),
        }  # fmt: skip
        print(name, json.dumps(found[name]), flush=True)
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
