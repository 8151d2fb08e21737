"""Train a masked or a causal LM on sentences for a given time.

    python -m recipes.train masked SENTENCES --out FOLDER --minutes 9
    python -m recipes.train causal SENTENCES --out FOLDER --minutes 5 --tokenizer FOLDER

The learning rate depends on the share of the time that has passed, or of `--steps`, which on a
CPU give the same weights every time. FOLDER/training.pt is written every so often and at the end;
called again with the same FOLDER and more minutes or steps, training goes on from there. The
result is FOLDER/model in float32, and FOLDER/ship as `recipes.export` makes it. Instead of
SENTENCES a folder of text may be given, which is cleaned first.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
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
from recipes.networks import SHAPES, build
from recipes.vocabulary import obtain, read_sentences


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults are those of the shipped models."""

    shape: str
    rate: float = 2e-3
    mask_share: float = 0.2
    batch_tokens: int = 32_768
    weight_decay: float = 0.05
    warm_up: float = 0.02
    average: float = 0.999
    seed: int = 0


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


class Trainer:
    """A network being trained, with a running average of its weights."""

    def __init__(self, network: Any, tokenizer: Any, recipe: Recipe, device: torch.device) -> None:
        self.network = network.to(device).train()
        self.tokenizer = tokenizer
        self.recipe = recipe
        self.device = device
        causal = network.config.model_type == "llama"
        self._loss = (
            causal_loss(network)
            if causal
            else masked_loss(network, recipe, tokenizer.mask_token_id)
        )
        # Decay pulls on matrices alone, as is usual.
        matrices = [p for p in network.parameters() if p.dim() > 1]
        others = [p for p in network.parameters() if p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=recipe.rate, betas=(0.9, 0.98), fused=device.type == "cuda"
        )
        self.average = [p.detach().clone() for p in network.parameters()]
        self.step = 0
        self.seconds = 0.0
        self.log: list[dict[str, float]] = []

    def run(
        self,
        corpus: Corpus,
        seconds: float,
        steps: int | None = None,
        save: Callable[[], None] | None = None,
    ) -> None:
        """Train until `seconds` have passed since the very first step, or for `steps`."""
        recipe, before = self.recipe, self.seconds
        generator = torch.Generator().manual_seed(recipe.seed + self.step)
        masks = torch.Generator(self.device).manual_seed(recipe.seed + self.step)
        batches: Iterator[Tensor] = corpus.batches(recipe.batch_tokens, generator)
        begun = saved = time.monotonic()
        total = torch.zeros((), device=self.device)
        parameters = list(self.network.parameters())
        counted = 0
        while True:
            elapsed = before + time.monotonic() - begun
            share = elapsed / seconds if steps is None else self.step / steps
            if share >= 1:
                break
            rate = recipe.rate * min(1.0, (share + 1e-4) / recipe.warm_up) * (1 - share)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"
            ):
                loss = self._loss(next(batches), masks)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                torch._foreach_lerp_(self.average, parameters, 1 - self._decay())
            total += loss.detach()
            counted += 1
            self.step += 1
            if self.step % 50 == 0:
                value = float(total) / counted  # waits for the device, so the clock stays honest
                total.zero_()
                counted = 0
                self.seconds = before + time.monotonic() - begun
                self.log.append({"step": self.step, "seconds": self.seconds, "loss": value})
                if not math.isfinite(value):
                    raise RuntimeError(f"the loss is {value} at step {self.step}")
                if self.step % 500 == 0 or self.step == 50:
                    line = f"step {self.step:6d}  {self.seconds:6.0f} s  loss {value:.4f}"
                    print(line, flush=True)
                if save is not None and time.monotonic() - saved > 60:
                    save()
                    saved = time.monotonic()
        self.seconds = before + time.monotonic() - begun

    def _decay(self) -> float:
        """Average over fewer steps at first, when the weights still move far."""
        return min(self.recipe.average, (1 + self.step) / (10 + self.step))

    def use_average(self) -> None:
        """Put the averaged weights into the network."""
        with torch.no_grad():
            for weight, mean in zip(self.network.parameters(), self.average, strict=True):
                weight.copy_(mean)

    def state(self) -> dict[str, Any]:
        """Return all that training needs to go on."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "step": self.step,
            "seconds": self.seconds,
            "log": self.log,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = [mean.to(self.device) for mean in state["average"]]
        self.step, self.seconds, self.log = state["step"], state["seconds"], state["log"]


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
    parser.add_argument("--shape", choices=sorted(SHAPES))
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--tokenizer", type=Path, help="use this one instead of learning one")
    parser.add_argument("--rate", type=float, default=Recipe.rate)
    parser.add_argument("--mask-share", type=float, default=Recipe.mask_share)
    parser.add_argument("--batch-tokens", type=int, default=Recipe.batch_tokens)
    parser.add_argument("--most", type=int, help="use only so many sentences")
    parser.add_argument("--seed", type=int, default=0)
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
    recipe = Recipe(shape, given.rate, given.mask_share, given.batch_tokens, seed=given.seed)
    torch.manual_seed(recipe.seed)
    trainer = Trainer(build(SHAPES[shape], tokenizer), tokenizer, recipe, device)
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

    trainer.run(corpus, given.minutes * 60, given.steps, save)
    save()
    trainer.use_average()
    trainer.network.save_pretrained(given.out / "model")
    tokenizer.save_pretrained(given.out / "model")
    facts = (
        f"{corpus.sentences:,} sentences ({corpus.tokens:,} tokens), {trainer.step:,} steps in "
        f"{trainer.seconds / 60:.1f} minutes"
    )
    size = export(given.out / "model", given.out / "ship", facts)
    print(f"{given.out / 'ship'}: {size:,} bytes of weights", flush=True)


if __name__ == "__main__":
    main()
