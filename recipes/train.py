"""Train a masked or a causal LM on sentences for a given time.

    python -m recipes.train masked SENTENCES --out FOLDER --minutes 9
    python -m recipes.train causal SENTENCES --out FOLDER --minutes 5 --tokenizer FOLDER

The learning rate depends on the elapsed share of the time, or of `--steps`, which on a CPU is
reproducible. FOLDER/training.pt is written every minute and at the end; the same FOLDER with more
minutes or steps continues from there. The result is FOLDER/model in float32, and FOLDER/ship as
written by `recipes.export` (not with `--keep`, for networks that are too large to ship). Instead
of SENTENCES a folder of text may be given, which is cleaned first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskov.models.huggingface import family_head
from recipes import clean
from recipes.corpus import Corpus
from recipes.export import export
from recipes.networks import LARGE, SHAPES, build
from recipes.trainer import Loss, Trainer, Training
from recipes.vocabulary import obtain, read_sentences


@dataclass(frozen=True)
class Recipe(Training):
    """How to train; the defaults are those of the shipped models."""

    shape: str = "modern-384x5"
    mask_share: float = 0.2


def loss_of(network: Any, recipe: Recipe, tokenizer: Any) -> Loss:
    """Return the loss of a network's kind."""
    if network.config.model_type == "llama":
        return causal_loss(network)
    return masked_loss(network, recipe, tokenizer.mask_token_id)


def masked_loss(network: Any, recipe: Recipe, mask_id: int) -> Callable[[Tensor, Any], Tensor]:
    """Return the masked loss: a share of each sentence is masked, and scored at the masks.

    Chosen tokens always become the mask, never a random token, as in sampling.
    """
    head = family_head(network)

    def loss(ids: Tensor, generator: torch.Generator) -> Tensor:
        count, length = ids.shape[0], ids.shape[1] - 2
        chosen = max(1, round(recipe.mask_share * length))
        keys = torch.rand((count, length), device=ids.device, generator=generator)
        place = keys.topk(chosen, dim=1).indices + 1
        shown = ids.scatter(1, place, mask_id)
        states = network.base_model(input_ids=shown)[0]
        picked = states.gather(1, place[..., None].expand(-1, -1, states.shape[2]))
        logits = head.logits(head.transform(picked.flatten(0, 1)))
        return F.cross_entropy(logits.float(), ids.gather(1, place).flatten())

    return loss


def causal_loss(network: Any) -> Callable[[Tensor, Any], Tensor]:
    """Return the causal loss: every token given the previous ones, end token included."""

    def loss(ids: Tensor, generator: torch.Generator) -> Tensor:
        logits = network(input_ids=ids[:, :-1]).logits
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    return loss


def main(arguments: list[str] | None = None) -> None:
    """Train one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["masked", "causal"])
    parser.add_argument(
        "sentences",
        type=Path,
        help="text file with one sentence per line, may be .xz; or a folder of text to clean",
    )
    parser.add_argument("--skip", nargs="*", default=[], help="files of that folder to skip")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="total, earlier calls included")
    parser.add_argument("--steps", type=int, help="total, instead of --minutes")
    parser.add_argument("--shape", choices=sorted(SHAPES | LARGE))
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--tokenizer", type=Path, help="existing tokenizer, not learned anew")
    parser.add_argument("--rate", type=float, default=Recipe.rate)
    parser.add_argument("--mask-share", type=float, default=Recipe.mask_share)
    parser.add_argument("--batch-tokens", type=int, default=Recipe.batch_tokens)
    parser.add_argument("--most", type=int, help="maximum number of sentences")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write only the float32 model")
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if given.tokenizer is not None and not given.tokenizer.exists():
        parser.error(f"tokenizer '{given.tokenizer}' not found")
    given.out.mkdir(parents=True, exist_ok=True)
    if given.sentences.is_dir():
        cleaned = given.out / "sentences.txt"
        if not cleaned.exists():
            clean.main([str(given.sentences), str(cleaned), "--skip", *given.skip])
        given.sentences = cleaned
    folder = given.tokenizer or given.out / "tokenizer"
    tokenizer = obtain(folder, given.sentences, given.vocabulary, given.most)
    corpus = Corpus.of(read_sentences(given.sentences, given.most), tokenizer, device)
    print(f"{corpus.sentences:,} sentences, {corpus.tokens:,} tokens", flush=True)
    shape = given.shape or ("modern-384x5" if given.kind == "masked" else "llama-384x5")
    recipe = Recipe(
        given.rate, given.batch_tokens, seed=given.seed, shape=shape, mask_share=given.mask_share
    )
    torch.manual_seed(recipe.seed)
    network = build((SHAPES | LARGE)[shape], tokenizer)
    trainer = Trainer(network, loss_of(network, recipe, tokenizer), recipe, device)
    checkpoint = given.out / "training.pt"
    if checkpoint.exists():
        trainer.restore(torch.load(checkpoint, map_location=device, weights_only=True))
        print(f"continuing from step {trainer.step}", flush=True)

    def save() -> None:
        torch.save(trainer.state(), checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        (given.out / "log.json").write_text(
            json.dumps({"recipe": vars(recipe), "log": trainer.log})
        )

    generator = torch.Generator().manual_seed(recipe.seed + trainer.step)
    batches = corpus.batches(recipe.batch_tokens, generator)
    trainer.run(batches, None if given.steps else given.minutes * 60, given.steps, save)
    save()
    trainer.use_average()
    trainer.network.save_pretrained(given.out / "model")
    tokenizer.save_pretrained(given.out / "model")
    if given.keep:
        print(f"{given.out / 'model'}: step {trainer.step}", flush=True)
        return
    facts = (
        f"{corpus.sentences:,} sentences ({corpus.tokens:,} tokens), {trainer.step:,} steps in "
        f"{trainer.seconds / 60:.1f} minutes"
    )
    size = export(given.out / "model", given.out / "ship", facts)
    print(f"{given.out / 'ship'}: {size:,} bytes of weights", flush=True)


if __name__ == "__main__":
    main()
