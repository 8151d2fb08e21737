r"""Train a translation model, autoregressive (`twin`) or masked, for a given time.

    python -m recipes.translation.train twin PAIRS --tokenizer FOLDER --out FOLDER --minutes 6
    python -m recipes.translation.train masked PAIRS --tokenizer FOLDER --out FOLDER \
        --targets distilled

PAIRS is the folder written by `recipes.translation.pairs`; `--targets distilled` replaces the
references by the output of `recipes.translation.distil`. One model serves all language pairs; the
smaller pair is repeated. OUT/training.pt is written every minute and at the end; the same OUT with
more minutes continues from there. `--weights FOLDER` starts from existing weights with a new
optimiser and warm-up. On a GPU the network is in bfloat16, `--compile` compiles its layers before
the clock starts, and `--record` replays steps as CUDA graphs. The result is OUT/model, in float16.
If PAIRS contains held-out pairs, OUT/log.json records their loss ten times, always without label
smoothing and noise, so that trainings with different options compare.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maskov.models import device_name
from maskov.models.network import (
    SpecialTokens,
    TranslationNetwork,
    TranslationShape,
    load_translation,
    read_tokenizer,
)
from recipes.trainer import BestAverage, Precision, Trainer, Training
from recipes.translation.compiling import compiled, succeeds, tolerate_failures, uncompile
from recipes.translation.corpus import Batch, Pairs, read_lines
from recipes.translation.folders import save_translation
from recipes.translation.losses import Masking, WordLoss, causal_loss, masked_loss, word_loss

PAIRS = ("de-en", "ro-en")
MASKING = ("few", "noisy", "noise", "foreign")  # options of `Masking`
BY_KIND = ("rate", "dropout", "smoothing")  # options of `Recipe` whose default depends on the model


@dataclass(frozen=True)
class Recipe(Training):
    """Training settings."""

    rate: float = 1.5e-3
    batch_tokens: int = 65_536
    weight_decay: float = 0.02
    warm_up: float = 0.04
    dropout: float = 0.1
    smoothing: float = 0.1
    joined: float = 0.4
    romanian: int = 4


# The settings of the shipped models, and the defaults. The masked one has no label smoothing, which
# would leave a heavy tail on every conditional, from which Gibbs at temperature 1 draws too often.
SHIPPED = {
    "twin": Recipe(rate=1.2e-3),
    "masked": Recipe(dropout=0.05, smoothing=0.0),
}
SHIPPED_MASKING = Masking(noisy=0.4, noise=1.0, foreign=0.3)


def read_pairs(
    folder: Path, targets: str, tokenizer: Any, device: torch.device, often: int, most: int | None
) -> tuple[Pairs, Tensor]:
    """Read all language pairs; return them with how often each pair occurs in an epoch."""
    files = [
        folder / f"{name}.{side}.xz" for name in PAIRS for side in ("train.src", f"{targets}.tgt")
    ]
    with ThreadPoolExecutor(len(files)) as pool:
        found = [lines[:most] for lines in pool.map(read_lines, files)]
    sources = [line for lines in found[::2] for line in lines]
    references = [line for lines in found[1::2] for line in lines]
    times: list[int] = []
    for name, ours, theirs in zip(PAIRS, found[::2], found[1::2], strict=True):
        if len(ours) != len(theirs):
            raise SystemExit(f"{name}: {len(ours)} sources have {len(theirs)} targets")
        times += [1 if name == "de-en" else often] * len(ours)
    pairs, kept = Pairs.of(sources, references, tokenizer, device)
    return pairs, torch.tensor(times)[kept]


def with_noise(batches: Iterator[Batch], share: float) -> Iterator[Batch]:
    """Mark a share of the batches, evenly spread, as noisy."""
    for number, batch in enumerate(batches):
        yield replace(batch, noisy=int((number + 1) * share) > int(number * share))


def read_held_out(
    folder: Path, tokenizer: Any, device: torch.device, most: int | None
) -> Pairs | None:
    """Read the held-out pairs of all languages; None if there are none."""
    sides: list[list[str]] = [[], []]
    for name in PAIRS:
        files = [folder / f"{name}.valid.{side}" for side in ("src", "tgt")]
        if all(file.is_file() for file in files):
            for lines, file in zip(sides, files, strict=True):
                lines += read_lines(file)[:most]
    return Pairs.of(*sides, tokenizer, device)[0] if sides[0] else None


def held_out_batches(pairs: Pairs, tokens: int, twin: bool) -> list[Batch]:
    """Return batches with about every held-out pair, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    batches: list[Batch] = []
    rows = 0
    for batch in pairs.batches(tokens, generator, target_end=twin):
        batches.append(batch)
        rows += len(batch.source)
        if rows >= len(pairs):
            break
    return batches


class Counted:
    """Counts the pairs, tokens and positions of batches as they pass."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.pairs = self.tokens = self.places = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> Batch:
        batch = next(self._batches)
        self.pairs += len(batch.source)
        self.tokens += batch.tokens
        self.places += batch.source.numel() + batch.target.numel()
        return batch

    def rates(self, seconds: float) -> str:
        """Return pairs and tokens per second, and the share of padding."""
        seconds = max(seconds, 1e-9)
        return (
            f"{self.pairs / seconds:,.0f} pairs/s, {self.tokens / seconds:,.0f} tokens/s, "
            f"{1 - self.tokens / max(1, self.places):.1%} padding and special tokens"
        )


def main(arguments: list[str] | None = None) -> None:
    """Train one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["twin", "masked"])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--targets", default="train", help="train (references) or distilled")
    parser.add_argument("--minutes", type=float, default=8.0, help="total, earlier calls included")
    parser.add_argument("--steps", type=int, help="total, instead of --minutes")
    parser.add_argument("--weights", type=Path, help="model folder to start from")
    for name in BY_KIND:
        defaults = ", ".join(f"{getattr(r, name):g} ({kind})" for kind, r in SHIPPED.items())
        parser.add_argument(f"--{name}", type=float, help=f"default: {defaults}")
    parser.add_argument("--batch-tokens", type=int, default=Recipe.batch_tokens)
    parser.add_argument("--romanian", type=int, default=Recipe.romanian)
    for name in MASKING:
        default = f"masked models only; default: {getattr(SHIPPED_MASKING, name):g}"
        parser.add_argument(f"--{name}", type=float, help=default)
    parser.add_argument(
        "--joined", type=float, default=Recipe.joined, help="share of pairs concatenated in twos"
    )
    parser.add_argument("--width", type=int, default=TranslationShape.width)
    parser.add_argument("--layers", type=int, default=TranslationShape.encoder_layers)
    parser.add_argument("--most", type=int, help="maximum pairs of each language, also held out")
    parser.add_argument("--compile", action="store_true", help="compile the layers with torch")
    parser.add_argument("--record", action="store_true", help="replay steps as CUDA graphs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    twin = given.kind == "twin"
    chosen = {name: value for name in MASKING if (value := getattr(given, name)) is not None}
    if twin and chosen:
        parser.error(f"--{min(chosen)} is for masked models only.")
    masking = replace(SHIPPED_MASKING, **chosen)
    if not masking.noisy and ("noise" in chosen or "foreign" in chosen):
        parser.error("--noise and --foreign need noisy batches; --noisy 0 has none.")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # cuDNN rebuilds its attention for every shape, which takes longer than the step itself.
    torch.backends.cuda.enable_cudnn_sdp(False)
    given.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    tokenizer = read_tokenizer(given.tokenizer)
    pairs, times = read_pairs(
        given.pairs, given.targets, tokenizer, device, given.romanian, given.most
    )
    words = int(pairs.target.lengths.sum())
    spent = time.monotonic() - begun
    print(f"{len(pairs):,} pairs, {words:,} target tokens, read in {spent:.1f} s", flush=True)
    changed = {name: value for name in BY_KIND if (value := getattr(given, name)) is not None}
    recipe = replace(
        SHIPPED[given.kind], batch_tokens=given.batch_tokens, seed=given.seed,
        romanian=given.romanian, joined=given.joined, **changed,
    )  # fmt: skip
    torch.manual_seed(recipe.seed)
    network = _network(given, tokenizer, twin, recipe.dropout)
    special = SpecialTokens.of(tokenizer)
    of_words: WordLoss = word_loss

    def loss(batch: Batch, generator: torch.Generator) -> Tensor:
        return loss_of(batch, generator, recipe.smoothing, of_words)

    def loss_of(
        batch: Batch, generator: torch.Generator, smoothing: float, words: WordLoss
    ) -> Tensor:
        if twin:
            return causal_loss(network, special, smoothing, batch, words)
        return masked_loss(network, special, masking, smoothing, batch, generator, words)

    precision: Precision = "bfloat16" if device.type == "cuda" else "autocast"
    trainer = Trainer(network, loss, recipe, device, precision, given.record)
    checkpoint = given.out / "training.pt"
    if checkpoint.exists():
        trainer.restore(torch.load(checkpoint, map_location=device, weights_only=True))
        print(f"continuing from step {trainer.step}", flush=True)

    held_out = read_held_out(given.pairs, tokenizer, device, given.most)
    kept = [] if held_out is None else held_out_batches(held_out, recipe.batch_tokens, twin)

    def measure() -> float:
        masks = torch.Generator(device).manual_seed(0)
        losses = [float(loss_of(batch, masks, 0.0, word_loss)) for batch in kept]
        return sum(losses) / len(losses)

    checks = BestAverage(trainer, measure) if kept else None

    def save_state() -> None:
        torch.save(trainer.state(), checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        (given.out / "log.json").write_text(
            json.dumps(
                {
                    "device": device_name(device),
                    "pairs": len(pairs),
                    "recipe": asdict(recipe),
                    "masking": None if twin else asdict(masking),
                    "held_out": checks.history if checks else [],
                    "log": trainer.log,
                }
            )
        )

    generator = torch.Generator().manual_seed(recipe.seed + trainer.step)
    batches = pairs.batches(recipe.batch_tokens, generator, recipe.joined, times, twin)
    noisy = 0.0 if twin else masking.noisy
    batches = with_noise(batches, noisy)
    if given.compile:
        begun = time.monotonic()
        # Several, so that code for all shapes and for noise is compiled before the clock starts.
        count = max(4, math.ceil(1 / noisy) + 1) if noisy else 4
        first = list(itertools.islice(batches, count))
        batches = itertools.chain(first, batches)

        def attempt() -> None:
            nonlocal of_words
            of_words = compiled(network)
            for batch in first:
                trainer.try_out(batch)
            tolerate_failures()

        if succeeds(attempt):
            print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
        else:
            uncompile(network)
            of_words = word_loss
    counted, before = Counted(batches), trainer.seconds
    seconds = None if given.steps else given.minutes * 60
    trainer.run(counted, seconds, given.steps, save_state, checks)
    rates = counted.rates(trainer.seconds - before)
    save_state()
    trainer.use_average()
    save_translation(given.out / "model", network.eval(), tokenizer, torch.float16)
    print(f"{given.out / 'model'}: {trainer.step:,} steps, {trainer.seconds:.0f} s, {rates}")


def initialise(network: TranslationNetwork) -> None:
    """Initialise the weights for training."""
    shape = network.shape
    depth = 2 * shape.encoder_layers + 3 * shape.decoder_layers
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            last = name.endswith((".out", ".narrow"))
            # Deeper networks start with smaller residual branches.
            scale = (depth / 2) ** -0.5 if last and shape.norm_first else 1.0
            nn.init.normal_(module.weight, std=scale * shape.width**-0.5 * 0.8)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=shape.width**-0.5)


def _network(
    given: argparse.Namespace, tokenizer: Any, twin: bool, dropout: float
) -> TranslationNetwork:
    """Build a network with initial weights, or with those of `--weights`."""
    shape = TranslationShape(
        vocabulary=len(tokenizer),
        width=given.width,
        heads=max(1, given.width // 64),
        inner=4 * given.width,
        encoder_layers=given.layers,
        decoder_layers=given.layers,
        causal=twin,
    )
    network = TranslationNetwork(shape, dropout)
    initialise(network)
    if given.weights is not None:
        known, _ = load_translation(given.weights, torch.device("cpu"), torch.float32)
        network.load_state_dict(known.state_dict())
    return network


if __name__ == "__main__":
    main()
