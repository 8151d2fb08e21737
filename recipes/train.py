"""Train a masked or a causal LM on sentences for a given time.

    python -m recipes.train masked SENTENCES --out FOLDER --minutes 9
    python -m recipes.train causal SENTENCES --out FOLDER --minutes 5 --tokenizer FOLDER

The learning rate depends on the elapsed share of the time, or of `--steps`, which on a CPU is
reproducible. The time begins after `--compile` has compiled. FOLDER/training.pt is written every
minute and at the end; the same FOLDER with more minutes or steps continues from there. The result
is FOLDER/model in float32, and FOLDER/ship as written by `recipes.export` (not with `--keep`, for
networks that are too large to ship). Instead of SENTENCES a folder of text may be given, which is
cleaned first, or with `--tokenised` a file that `recipes.corpus` wrote.

`--any-rate 0.5` masks half of the sentences at a rate between one token and all, drawn evenly, as
starts and ordered energies need it, and the other half at `--mask-share`. `--start MODEL` begins
with the weights and the tokenizer of a model. With `--held-out FILE` log.json has the losses of
held-out sentences at several rates, ten times (`--checks`) during the training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForMaskedLM

from maskov.models.huggingface import family_head
from maskov.shipped import source_of
from recipes import clean
from recipes.corpus import LONGEST, Corpus
from recipes.export import export
from recipes.flat import FlatModernBert
from recipes.networks import LARGE, SHAPES, build
from recipes.trainer import Loss, Trainer, Training
from recipes.vocabulary import obtain, read_sentences


@dataclass(frozen=True)
class Recipe(Training):
    """How to train; the defaults are those of the shipped models."""

    shape: str = "modern-384x5"
    mask_share: float = 0.2
    # The share of sentences that are masked at any rate instead.
    any_rate: float = 0.0


def loss_of(network: Any, recipe: Recipe, tokenizer: Any, compiled: bool = False) -> Loss:
    """Return the loss of a network's kind."""
    if network.config.model_type == "llama":
        return causal_loss(network)
    return masked_loss(network, recipe, tokenizer.mask_token_id, compiled)


def masked_loss(
    network: Any, recipe: Recipe, mask_id: int, compiled: bool
) -> Callable[[Tensor, Any], Tensor]:
    """Return the masked loss: the mean over sentences of the mean −log p at their masks.

    Chosen tokens always become the mask, never a random token, as in sampling. How many are chosen
    depends on a batch's shape only: a device need not be waited for, and rates are spread evenly.
    """
    states = states_of(network)
    if network.config.model_type == "modernbert":
        states = FlatModernBert(network, max(LONGEST + 2, recipe.batch_tokens), compiled)

    @cache
    def chosen(count: int, length: int) -> tuple[Tensor, ...]:
        """Return the row of each mask, its number there, and its weight."""
        number = torch.full((count,), max(1, round(recipe.mask_share * length)))
        free = round(recipe.any_rate * count)
        rate = (torch.arange(free) + 0.5) / max(free, 1)
        number[:free] = (rate * length).ceil().long().clamp(1, length)
        row = torch.arange(count).repeat_interleave(number)
        rank = torch.arange(len(row)) - (number.cumsum(0) - number)[row]
        device = next(network.parameters()).device
        return row.to(device), rank.to(device), (1 / number[row] / count).to(device)

    def loss(ids: Tensor, generator: torch.Generator) -> Tensor:
        count, length = ids.shape[0], ids.shape[1] - 2
        row, rank, weight = chosen(count, length)
        keys = torch.rand((count, length), device=ids.device, generator=generator)
        place = keys.argsort(1)[row, rank] + 1  # after the start token
        return (masked_terms(network, states, ids, (row, place), mask_id) * weight).sum()

    return loss


def states_of(network: Any) -> Callable[[Tensor], Tensor]:
    """Return the function that computes the last states of framed sentences of one length."""
    return lambda ids: network.base_model(input_ids=ids)[0]


def masked_terms(
    network: Any,
    states: Callable[[Tensor], Tensor],
    ids: Tensor,
    places: tuple[Tensor, Tensor],
    mask_id: int,
) -> Tensor:
    """Return −log p of the tokens at these places of framed sentences, all masked."""
    head = family_head(network)
    shown = ids.index_put(places, torch.tensor(mask_id, device=ids.device))
    logits = head.logits(head.transform(states(shown)[places]))
    return F.cross_entropy(logits.float(), ids[places], reduction="none")


def held_out_losses(
    network: Any, corpus: Corpus, mask_id: int, rates: Sequence[float] = (0.2, 0.5, 0.8, 1.0)
) -> dict[str, float]:
    """Return the mean −log p at the masks of held-out sentences at each rate, and at one mask.

    The masks depend on the sentences alone, so numbers of different networks can be compared.
    """
    states = states_of(network)
    found = {"one": 0.0, **{str(rate): 0.0 for rate in rates}}
    for ids in corpus.groups.values():
        count, length = ids.shape[0], ids.shape[1] - 2
        keys = torch.rand((count, length), generator=torch.Generator().manual_seed(length))
        rank = keys.argsort(1).argsort(1).to(ids.device)
        for name in found:
            masks = 1 if name == "one" else max(1, round(float(name) * length))
            for rows, ranks in zip(ids.split(512), rank.split(512), strict=True):
                row, place = (ranks < masks).nonzero(as_tuple=True)
                terms = masked_terms(network, states, rows.long(), (row, place + 1), mask_id)
                found[name] += float(terms.sum()) / masks / corpus.sentences
    return found


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
    parser.add_argument("--tokenised", action="store_true", help="a file of `recipes.corpus`")
    parser.add_argument("--skip", nargs="*", default=[], help="files of that folder to skip")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="total, earlier calls included")
    parser.add_argument("--steps", type=int, help="total, instead of --minutes")
    parser.add_argument("--pause", type=float, help="minutes of this call; call again to continue")
    parser.add_argument("--shape", choices=sorted(SHAPES | LARGE))
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--tokenizer", type=Path, help="existing tokenizer, not learned anew")
    parser.add_argument("--rate", type=float, default=Recipe.rate)
    parser.add_argument("--muon", type=float, default=0.0, help="rate of Muon, for hidden layers")
    parser.add_argument("--compile", action="store_true", help="on a GPU about twice as fast")
    parser.add_argument("--mask-share", type=float, default=Recipe.mask_share)
    parser.add_argument("--any-rate", type=float, default=0.0, help="share of sentences")
    parser.add_argument("--start", help="model to begin with: a shipped name or a folder")
    parser.add_argument("--precision", choices=["autocast", "bfloat16"], default="autocast")
    parser.add_argument("--average", type=float, default=Recipe.average)
    parser.add_argument("--held-out", type=Path, help="sentences to measure by")
    parser.add_argument("--checks", type=int, default=10, help="how often they are measured")
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
    start = None if given.start is None else Path(source_of(given.start, "masked"))
    folder = given.tokenizer or start or given.out / "tokenizer"
    tokenizer = obtain(folder, given.sentences, given.vocabulary, given.most)
    if given.tokenised:
        corpus = Corpus.load(given.sentences, device)
    else:
        corpus = Corpus.of(read_sentences(given.sentences, given.most), tokenizer, device)
    print(f"{corpus.sentences:,} sentences, {corpus.tokens:,} tokens", flush=True)
    shape = given.shape or ("modern-384x5" if given.kind == "masked" else "llama-384x5")
    recipe = Recipe(
        given.rate, given.batch_tokens, average=given.average, seed=given.seed, shape=shape,
        mask_share=given.mask_share, any_rate=given.any_rate, muon=given.muon,
    )  # fmt: skip
    torch.manual_seed(recipe.seed)
    if start is None:
        network = build((SHAPES | LARGE)[shape], tokenizer)
    else:
        network = AutoModelForMaskedLM.from_pretrained(start, dtype=torch.float32)
    loss = loss_of(network, recipe, tokenizer, given.compile)
    trainer = Trainer(network, loss, recipe, device, given.precision)
    checkpoint = given.out / "training.pt"
    if checkpoint.exists():
        trainer.restore(torch.load(checkpoint, map_location=device, weights_only=True))
        print(f"continuing from step {trainer.step}", flush=True)

    def save() -> None:
        torch.save(trainer.state(), checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        (given.out / "log.json").write_text(
            json.dumps({"recipe": vars(recipe), "log": trainer.log, "held_out": curve})
        )

    curve = list[dict[str, float]]()
    held = None
    if given.held_out is not None:
        held = Corpus.of(read_sentences(given.held_out), tokenizer, device)

    def check() -> None:
        if held is not None:
            with trainer.averaged(), torch.no_grad():
                losses = held_out_losses(trainer.network, held, tokenizer.mask_token_id)
            curve.append({"step": trainer.step, "seconds": trainer.seconds, **losses})
            print(json.dumps(curve[-1]), flush=True)

    generator = torch.Generator().manual_seed(recipe.seed + trainer.step)
    batches = corpus.batches(recipe.batch_tokens, generator)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan anew for each shape
    if given.compile:  # before the clock begins, which the rate follows
        trainer.try_out(next(batches))
    check()
    seconds = None if given.steps else given.minutes * 60
    pause = None if given.pause is None else given.pause * 60
    trainer.run(batches, seconds, given.steps, save, check, given.checks, pause)
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
