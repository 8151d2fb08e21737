"""Held-out quality of a masked or causal LM: `python -m recipes.measure masked FOLDER SENTENCES`.

Masked: with one token masked at a time, the mean −log p of the right token, per token and per word
(comparable between vocabularies), and the top-1 accuracy. Causal: perplexity per token, end token
not counted.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch

import maskov
from maskov.models.scorer import Scorer
from maskov.types import Sequences
from recipes.corpus import LONGEST, SHORTEST
from recipes.vocabulary import read_sentences


def masked_quality(model: maskov.MaskedModel, sentences: Sequence[str]) -> dict[str, float]:
    """Return log-loss, log-loss per word and top-1 accuracy with one mask at a time."""
    engine = Scorer(model)
    kept = [
        (text, ids)
        for text, ids in ((text, model.encode(text)) for text in sentences)
        if SHORTEST <= len(ids) <= LONGEST
    ]
    loss, right, tokens, words = 0.0, 0, 0, 0
    for begin in range(0, len(kept), 256):
        group = kept[begin : begin + 256]
        lengths = torch.tensor([len(ids) for _, ids in group], device=model.device)
        batch = torch.full((len(group), int(lengths.max())), model.mask_id, device=model.device)
        for row, (_, ids) in enumerate(group):
            batch[row, : len(ids)] = torch.tensor(ids, device=model.device)
        sites = engine.cache(Sequences(batch, lengths))
        inside = torch.arange(batch.shape[1], device=model.device) < lengths[:, None]
        loss += float((sites.log_normaliser - sites.logit)[inside].sum())
        for hidden, truth in zip(
            torch.split(sites.hidden[inside], engine.model.head_rows),
            torch.split(batch[inside], engine.model.head_rows),
            strict=True,
        ):
            right += int((model.logits(hidden).argmax(1) == truth).sum())
        tokens += int(lengths.sum())
        words += sum(len(text.split()) for text, _ in group)
    return {
        "sentences": len(kept),
        "tokens": tokens,
        "log_loss": loss / tokens,
        "log_loss_per_word": loss / words,
        "top_1": right / tokens,
    }


def causal_quality(judge: maskov.Autoregressive, sentences: Sequence[str]) -> dict[str, float]:
    """Return the perplexity per token and per word."""
    kept = [
        (text, ids)
        for text, ids in ((text, judge.tokenise(text)) for text in sentences)
        if SHORTEST <= len(ids) <= LONGEST
    ]
    loss = sum(float(terms.sum()) for terms in judge.token_terms([ids for _, ids in kept]))
    tokens = sum(len(ids) for _, ids in kept)
    words = sum(len(text.split()) for text, _ in kept)
    return {
        "sentences": len(kept),
        "tokens": tokens,
        "perplexity": math.exp(loss / tokens),
        "log_loss_per_word": loss / words,
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["masked", "causal"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--most", type=int)
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Resolved: a bare name such as `wiki-small` would mean the shipped model.
    folder = given.folder.resolve(strict=True)
    sentences = list(read_sentences(given.sentences, given.most))
    if given.kind == "masked":
        found = masked_quality(maskov.load(folder, device), sentences)
    else:
        found = causal_quality(maskov.Autoregressive(str(folder), device), sentences)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
