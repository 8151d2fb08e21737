"""Train a classifier of sentences from a folder of labelled lines.

    python -m recipes.classifier FOLDER --out MODEL --base wiki-small --minutes 1
    python -m recipes.classifier FOLDER --out MODEL --layers 2 --width 128 --tokenizer wiki-small

FOLDER has one file per label, one sentence per line: positive.txt, negative.txt (or .txt.xz). With
`--base` the classifier starts from a masked LM, otherwise from scratch. All labels count equally,
however many lines they have. The averaged weights with the lowest held-out log-loss are kept, and
one temperature is fitted on half of the held-out lines, so that the probabilities can be trusted;
accuracy and calibration are measured on the other half. MODEL is a Hugging Face folder in float16.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskov.shipped import source_of
from recipes.labelled import (
    Batch,
    LabelledCorpus,
    dropouts,
    hold_out,
    read_folder,
    word_range,
)
from recipes.networks import POSITIONS
from recipes.trainer import BestAverage, Loss, Trainer, Training

_CARD = """# {name}
A classifier of sentences: {labels}. {summary}, {parameters:,} parameters in float16.

- Training: {training_data}
- Quality: {measured}
- Licence: {licence}
"""


@dataclass(frozen=True)
class Recipe(Training):
    """How to train a classifier."""

    rate: float = 3e-4
    batch_tokens: int = 8192
    warm_up: float = 0.1
    average: float = 0.99
    word_dropout: float = 0.1


def untrained(tokenizer: Any, layers: int, width: int, labels: list[str], dropout: float) -> Any:
    """Return a BERT classifier with random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=max(1, width // 64),
            intermediate_size=4 * width,
            max_position_embeddings=POSITIONS,
            pad_token_id=tokenizer.pad_token_id,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            classifier_dropout=dropout,
            **_names(labels),
        )
    )


def from_base(folder: str, labels: list[str], dropout: float) -> Any:
    """Return a classifier with the encoder of a masked LM and a new output layer."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(folder)
    settings = dict.fromkeys(dropouts(config), dropout)
    return AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, **settings, **_names(labels)
    )


def _names(labels: list[str]) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
    }


def loss_of(network: Any, recipe: Recipe, mask_id: int, weight: Tensor) -> Loss:
    """Return the weighted log-loss, with a share of the tokens masked."""

    def loss(batch: Batch, generator: torch.Generator) -> Tensor:
        ids = batch.ids
        hidden = torch.rand(ids.shape, device=ids.device, generator=generator) < recipe.word_dropout
        hidden[:, 0] = hidden[:, -1] = False
        logits = network(input_ids=ids.masked_fill(hidden, mask_id)).logits
        return F.cross_entropy(logits.float(), batch.labels, weight=weight)

    return loss


def logits_of(network: Any, corpus: LabelledCorpus, tokens: int = 65_536) -> tuple[Tensor, Tensor]:
    """Return the logits and labels of all sentences."""
    with torch.no_grad():
        pairs = [
            (network(input_ids=batch.ids).logits.double(), batch.labels)
            for batch in corpus.epoch(tokens)
        ]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([labels for _, labels in pairs])


def balanced_loss(logits: Tensor, labels: Tensor) -> float:
    """Return the log-loss with every label counted equally."""
    counts = torch.bincount(labels, minlength=logits.shape[1]).clamp(min=1)
    return float(F.cross_entropy(logits, labels, weight=1.0 / counts.to(logits)))


def quality(logits: Tensor, labels: Tensor, bins: int = 15) -> dict[str, float]:
    """Return accuracy, log-loss and expected calibration error."""
    sure, guess = logits.softmax(1).max(1)
    right = (guess == labels).double()
    bucket = (sure * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64, device=logits.device)
    gap.index_add_(0, bucket, right - sure)
    return {
        "accuracy": float(right.mean()),
        "log_loss": balanced_loss(logits, labels),
        "calibration_error": float(gap.abs().sum() / len(labels)),
    }


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature with the lowest log-loss."""
    grid = torch.logspace(-1, 1, 201, dtype=torch.float64).tolist()
    return min(grid, key=lambda heat: balanced_loss(logits / heat, labels))


def divide_logits(network: Any, temperature: float) -> None:
    """Divide the output layer by a temperature."""
    layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    output = next(x for x in reversed(layers) if x.out_features == network.config.num_labels)
    with torch.no_grad():
        output.weight /= temperature
        if output.bias is not None:
            output.bias /= temperature


def train(
    network: Any,
    tokenizer: Any,
    lines: dict[str, list[str]],
    recipe: Recipe,
    device: torch.device,
    held_out: int,
    seconds: float | None,
    epochs: float,
) -> dict[str, Any]:
    """Train in place; return what was measured."""
    kept, held = hold_out(lines, held_out, recipe.seed)
    corpus = LabelledCorpus.of(kept, tokenizer, device)
    measured = LabelledCorpus.of(held, tokenizer, device)
    print(f"{corpus.sentences:,} sentences, {measured.sentences:,} held out", flush=True)
    counts = corpus.counts(len(lines)).float()
    weight = counts.sum() / (len(lines) * counts)
    trainer = Trainer(
        network, loss_of(network, recipe, tokenizer.mask_token_id, weight), recipe, device
    )
    best = BestAverage(trainer, lambda: balanced_loss(*logits_of(network, measured)))
    generator = torch.Generator().manual_seed(recipe.seed)
    steps = max(1, round(epochs * corpus.steps(recipe.batch_tokens)))
    trainer.run(corpus.batches(recipe.batch_tokens, generator), seconds, steps, check=best)
    best.use()
    logits, labels = logits_of(network, measured)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(recipe.seed))
    fitting, testing = order.to(device).chunk(2)
    before = quality(logits[testing], labels[testing])
    temperature = fit_temperature(logits[fitting], labels[fitting])
    divide_logits(network, temperature)
    after = quality(logits[testing] / temperature, labels[testing])
    return {
        "sentences": corpus.sentences,
        "tokens": corpus.tokens,
        "steps": trainer.step,
        "best_step": best.step,
        "seconds": trainer.seconds,
        "temperature": temperature,
        "before_calibration": before,
        **after,
        "recipe": vars(recipe),
        "history": best.history,
        "log": trainer.log,
    }


def save(network: Any, tokenizer: Any, out: Path, record: dict[str, Any], licence: str) -> int:
    """Write the float16 folder with a card and the record; return the bytes of its weights."""
    for name in dropouts(network.config):
        setattr(network.config, name, 0.0)
    network.to(torch.float16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    config = network.config
    labels = [config.id2label[index] for index in sorted(config.id2label)]
    size = sum(file.stat().st_size for file in out.glob("*.safetensors"))
    about = {
        "name": out.name,
        "kind": "classifier",
        "summary": f"{config.model_type}, {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {config.vocab_size} tokens; labels {', '.join(labels)}",
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "bytes": size,
        "training_data": f"{record['sentences']:,} sentences ({record['tokens']:,} tokens), "
        f"{record['steps']:,} steps in {record['seconds'] / 60:.1f} minutes",
        "licence": licence,
        "quality": {
            "held-out accuracy": round(record["accuracy"], 4),
            "held-out log-loss": round(record["log_loss"], 4),
            "held-out calibration error": round(record["calibration_error"], 4),
        },
    }
    (out / "about.json").write_text(json.dumps(about) + "\n")
    quality = ", ".join(f"{name} {value}" for name, value in about["quality"].items())
    card = _CARD.format(**about, labels=" or ".join(labels), measured=quality)
    (out / "README.md").write_text(card)
    (out / "training.json").write_text(json.dumps(record))
    return size


def main(arguments: list[str] | None = None) -> None:
    """Train one classifier."""
    from transformers import AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="one file per label: positive.txt, ...")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", help="masked LM to start from: a folder or a shipped model")
    parser.add_argument("--layers", type=int, default=2, help="of a classifier from scratch")
    parser.add_argument("--width", type=int, default=128, help="of a classifier from scratch")
    parser.add_argument("--tokenizer", default="wiki-small", help="of a classifier from scratch")
    parser.add_argument("--minutes", type=float, help="most minutes; default: all epochs")
    parser.add_argument("--epochs", type=float, default=5.0, help="most epochs")
    parser.add_argument("--rate", type=float, help="default: 1e-3, with --base 1e-4")
    parser.add_argument("--batch-tokens", type=int, default=Recipe.batch_tokens)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--word-dropout", type=float, default=Recipe.word_dropout)
    parser.add_argument("--held-out", type=int, default=2000, help="lines of each label")
    parser.add_argument("--words", type=word_range, help="fewest and most words, such as 8:40")
    parser.add_argument("--licence", default="that of the training text", help="for the card")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = read_folder(given.folder, given.words)
    labels = list(lines)
    if len(labels) < 2:
        parser.error(f"'{given.folder}' has only the label '{labels[0]}'; give two files or more")
    torch.manual_seed(given.seed)
    source = source_of(given.base or given.tokenizer, "masked")
    tokenizer = AutoTokenizer.from_pretrained(source)
    if given.base:
        network = from_base(source, labels, given.dropout)
    else:
        network = untrained(tokenizer, given.layers, given.width, labels, given.dropout)
    recipe = Recipe(
        rate=given.rate or (1e-4 if given.base else 1e-3),
        batch_tokens=given.batch_tokens,
        seed=given.seed,
        word_dropout=given.word_dropout,
    )
    seconds = None if given.minutes is None else 60 * given.minutes
    record = train(network, tokenizer, lines, recipe, device, given.held_out, seconds, given.epochs)
    size = save(network, tokenizer, given.out, record, given.licence)
    print(
        f"{given.out}: accuracy {record['accuracy']:.4f}, log-loss {record['log_loss']:.4f}, "
        f"calibration error {record['calibration_error']:.4f}, {size:,} bytes of weights",
        flush=True,
    )


if __name__ == "__main__":
    main()
