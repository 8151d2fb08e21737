"""Continue the training of a masked LM on the text of a domain.

    python -m recipes.adapt FOLDER --model wiki-small --out MODEL --add-words 4000 --label-prefix

FOLDER has one file per label, one sentence per line: positive.txt, negative.txt (or .txt.xz).
`--add-words` makes the most frequent words that the tokenizer splits one token each. `--spaces` is
for text that has been tokenised before ("it 's good ."): words are what stands between spaces, and
decoding gives back the same spaces. With `--label-prefix` half of the batches have the label as
their first word, never masked, so that the model knows both: sentences, and sentences of a label.
A frozen first word then steers it. The averaged weights with the lowest held-out log-loss are kept.
MODEL is a Hugging Face folder in float16, for `maskov sample --model MODEL`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskov.encoders.families import FAMILIES
from maskov.models.huggingface import family_head
from maskov.shipped import source_of
from recipes.labelled import (
    Batch,
    LabelledCorpus,
    Lines,
    dropouts,
    hold_out,
    read_folder,
    word_range,
)
from recipes.trainer import BestAverage, Loss, Trainer, Training
from recipes.words import extend_network, extended, frequent, split_words

_CARD = """# {name}
A masked LM of {parameters:,} parameters in float16: {base}, trained further on {training_data}.

- Words added: {added:,}
- Labels as first word: {labels}
- Quality: held-out log-loss {log_loss:.4f}, top-1 accuracy {top_1:.4f} (one mask at a time)
- Licence: that of the training text
"""


@dataclass(frozen=True)
class Recipe(Training):
    """How to adapt."""

    rate: float = 5e-4
    batch_tokens: int = 16_384
    warm_up: float = 0.05
    average: float = 0.995
    mask_share: float = 0.2


def extend(
    network: Any,
    tokenizer: Any,
    lines: Lines,
    words: int,
    labels: bool,
    spaces: bool,
) -> tuple[Any, int]:
    """Add words to a network and its tokenizer; return the tokenizer and how many were added."""
    every = (line for texts in lines.values() for line in texts)
    added = frequent(split_words(tokenizer, every, spaces), words)
    known = tokenizer.get_vocab()
    if labels:
        added += [label for label in lines if label not in known and label not in added]
    if not added and not spaces:
        return tokenizer, 0
    after = extended(tokenizer, added, spaces)
    extend_network(network, tokenizer, after)
    return after, len(after) - len(tokenizer)


def label_tokens(tokenizer: Any, labels: list[str]) -> Tensor:
    """Return the token of each label, which must be one word of the vocabulary."""
    ids = [tokenizer(label, add_special_tokens=False)["input_ids"] for label in labels]
    for label, tokens in zip(labels, ids, strict=True):
        if len(tokens) != 1 or tokens[0] == tokenizer.unk_token_id:
            raise SystemExit(f"the label '{label}' is not one lower-case word")
    return torch.tensor(ids).flatten()


@dataclass(frozen=True)
class Masked:
    """Framed sentences; the first `fixed` tokens are never masked."""

    ids: Tensor
    fixed: int


def prefixed(batch: Batch, tokens: Tensor) -> Masked:
    """Put the token of each one's label before its sentence."""
    first = tokens[batch.labels][:, None]
    return Masked(torch.cat([batch.ids[:, :1], first, batch.ids[:, 1:]], dim=1), 2)


def both(batches: Iterator[Batch], tokens: Tensor | None) -> Iterator[Masked]:
    """Yield every second batch with its labels, the others without."""
    for number, batch in enumerate(batches):
        if tokens is not None and number % 2:
            yield prefixed(batch, tokens)
        else:
            yield Masked(batch.ids, 1)


def loss_of(network: Any, mask_share: float, mask_id: int) -> Loss:
    """Return the masked loss: a share of each sentence is masked, and scored at the masks."""
    head = family_head(network)

    def loss(batch: Masked, generator: torch.Generator) -> Tensor:
        ids, fixed = batch.ids, batch.fixed
        count, length = ids.shape[0], ids.shape[1] - fixed - 1
        chosen = max(1, round(mask_share * length))
        keys = torch.rand((count, length), device=ids.device, generator=generator)
        place = keys.topk(chosen, dim=1).indices + fixed
        states = network.base_model(input_ids=ids.scatter(1, place, mask_id))[0]
        picked = states.gather(1, place[..., None].expand(-1, -1, states.shape[2]))
        logits = head.logits(head.transform(picked.flatten(0, 1)))
        return F.cross_entropy(logits.float(), ids.gather(1, place).flatten())

    return loss


def single_masks(
    network: Any, batches: Iterator[Masked], mask_id: int, seed: int, positions: int = 4
) -> dict[str, float]:
    """Return log-loss and top-1 accuracy with one mask at a time, at a few random positions."""
    head = family_head(network)
    loss, right, tokens = 0.0, 0, 0
    with torch.no_grad():
        for batch in batches:
            ids, fixed = batch.ids, batch.fixed
            generator = torch.Generator(ids.device).manual_seed(seed)
            length = ids.shape[1] - fixed - 1
            keys = torch.rand((len(ids), length), device=ids.device, generator=generator)
            places = keys.topk(min(positions, length), dim=1).indices + fixed
            for place in places.T:
                place = place[:, None]
                states = network.base_model(input_ids=ids.scatter(1, place, mask_id))[0]
                picked = states.gather(1, place[..., None].expand(-1, -1, states.shape[2]))
                logits = head.logits(head.transform(picked[:, 0])).float()
                truth = ids.gather(1, place)[:, 0]
                loss += float(F.cross_entropy(logits, truth, reduction="sum"))
                right += int((logits.argmax(1) == truth).sum())
                tokens += len(ids)
    return {"log_loss": loss / tokens, "top_1": right / tokens}


def main(arguments: list[str] | None = None) -> None:
    """Adapt one model."""
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="one file per label: positive.txt, ...")
    parser.add_argument("--model", default="wiki-small", help="masked LM to start from")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--add-words", type=int, default=0, help="most words to add")
    parser.add_argument("--spaces", action="store_true", help="words are separated by spaces only")
    parser.add_argument("--label-prefix", action="store_true", help="learn from labels, too")
    parser.add_argument("--minutes", type=float, help="most minutes; default: all epochs")
    parser.add_argument("--epochs", type=float, default=30.0, help="most epochs")
    parser.add_argument("--rate", type=float, default=Recipe.rate)
    parser.add_argument("--mask-share", type=float, default=Recipe.mask_share)
    parser.add_argument("--batch-tokens", type=int, default=Recipe.batch_tokens)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--held-out", type=int, default=1000, help="lines of each label")
    parser.add_argument("--words", type=word_range, help="fewest and most words, such as 8:40")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = read_folder(given.folder, given.words)
    torch.manual_seed(given.seed)
    source = source_of(given.model, "masked")
    config = AutoConfig.from_pretrained(source)
    if config.model_type not in FAMILIES:
        parser.error(f"models of the family '{config.model_type}' cannot be adapted")
    network = AutoModelForMaskedLM.from_pretrained(
        source, dtype=torch.float32, **dict.fromkeys(dropouts(config), given.dropout)
    )
    kept, held = hold_out(lines, given.held_out, given.seed)
    tokenizer, added = extend(
        network, AutoTokenizer.from_pretrained(source), kept, given.add_words,
        given.label_prefix, given.spaces,
    )  # fmt: skip
    tokens = label_tokens(tokenizer, list(lines)).to(device) if given.label_prefix else None
    corpus = LabelledCorpus.of(kept, tokenizer, device)
    measured = LabelledCorpus.of(held, tokenizer, device)
    print(
        f"{corpus.sentences:,} sentences, {corpus.tokens:,} tokens, {measured.sentences:,} "
        f"sentences held out, {added:,} words added",
        flush=True,
    )
    recipe = Recipe(given.rate, given.batch_tokens, seed=given.seed, mask_share=given.mask_share)
    mask_id = tokenizer.mask_token_id
    trainer = Trainer(network, loss_of(network, recipe.mask_share, mask_id), recipe, device)

    def plain() -> dict[str, float]:
        batches = (Masked(batch.ids, 1) for batch in measured.epoch(16_384))
        return single_masks(network, batches, mask_id, given.seed)

    def labelled() -> dict[str, float]:
        assert tokens is not None
        batches = (prefixed(batch, tokens) for batch in measured.epoch(16_384))
        return single_masks(network, batches, mask_id, given.seed)

    def held_out() -> float:
        if tokens is None:
            return plain()["log_loss"]
        return (plain()["log_loss"] + labelled()["log_loss"]) / 2

    best = BestAverage(trainer, held_out)
    best()
    generator = torch.Generator().manual_seed(given.seed)
    batches = both(corpus.batches(recipe.batch_tokens, generator), tokens)
    seconds = None if given.minutes is None else 60 * given.minutes
    steps = max(1, round(given.epochs * corpus.steps(recipe.batch_tokens)))
    trainer.run(batches, seconds, steps, check=best)
    best.use()
    result = plain()
    record: dict[str, Any] = {
        "name": given.out.name,
        "base": given.model,
        "added": added,
        "labels": ", ".join(lines) if given.label_prefix else "no",
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "training_data": f"{corpus.sentences:,} sentences ({corpus.tokens:,} tokens), "
        f"{trainer.step:,} steps in {trainer.seconds / 60:.1f} minutes",
        **result,
    }
    if tokens is not None:
        record["with_labels"] = labelled()
    record |= {"recipe": vars(recipe), "history": best.history, "log": trainer.log}
    for name in dropouts(network.config):
        setattr(network.config, name, 0.0)
    network.to(torch.float16).save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    (given.out / "README.md").write_text(_CARD.format(**record))
    (given.out / "training.json").write_text(json.dumps(record))
    print(f"{given.out}: {result}, with labels {record.get('with_labels')}", flush=True)


if __name__ == "__main__":
    main()
