"""Train a masked or a causal LM on sentences for a given time.

    python -m recipes.train masked SENTENCES --out FOLDER --minutes 9
    python -m recipes.train causal SENTENCES --out FOLDER --minutes 5 --tokenizer FOLDER

The learning rate depends on the share of the time that has passed, or of `--steps`, which on a
CPU give the same weights every time. FOLDER/training.pt is written every so often and at the end;
called again with the same FOLDER and more minutes or steps, training goes on from there. The
result is FOLDER/model in float32, and FOLDER/ship as `recipes.export` makes it (not with `--keep`,
for networks that are too large to ship). Instead of SENTENCES a folder of text may be given, which
is cleaned first.
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

from maskov.models.heads import FAMILIES
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
    """Return the loss that suits a network's kind."""
    if network.config.model_type == "llama":
        return causal_loss(network)
    return masked_loss(network, recipe, tokenizer.mask_token_id)


def masked_loss(network: Any, recipe: Recipe, mask_id: int) -> Callable[[Tensor, Any], Tensor]:
    """Return the loss of a batch: a share of each sentence masked, scored at the masks only.

    Every chosen token becomes the mask, none a random one: a sampler never shows anything else.
    """
    head = FAMILIES[network.config.model_type](network)

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
    """Return the loss of a batch: every token given those before it, the end included."""

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
        help="one sentence a line, plain or .xz; or a folder of text to clean",
    )
    parser.add_argument("--skip", nargs="*", default=[], help="files of that folder to leave out")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="in all, earlier calls included")
    parser.add_argument("--steps", type=int, help="in all, instead of --minutes")
    parser.add_argument("--shape", choices=sorted(SHAPES | LARGE))
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--tokenizer", type=Path, help="use this one instead of learning one")
    parser.add_argument("--rate", type=float, default=Recipe.rate)
    parser.add_argument("--mask-share", type=float, default=Recipe.mask_share)
    parser.add_argument("--batch-tokens", type=int, default=Recipe.batch_tokens)
    parser.add_argument("--most", type=int, help="use only so many sentences")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write the float32 model only")
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if given.tokenizer is not None and not given.tokenizer.exists():
        parser.error(f"there is no tokenizer '{given.tokenizer}'")
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
        print(f"going on from step {trainer.step}", flush=True)

    def save() -> None:
        torch.save(trainer.state(), checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        (given.out / "log.json").write_text(
            json.dumps({"recipe": vars(recipe), "log": trainer.log})
        )

    generator = torch.Generator().manual_seed(recipe.seed + trainer.step)
    batches = corpus.batches(recipe.batch_tokens, generator)
    trainer.run(batches, given.minutes * 60, given.steps, save)
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
