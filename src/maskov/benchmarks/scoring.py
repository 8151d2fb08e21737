"""The scoring rows: E_norm of the same sentences by maskov and minicons."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from maskov.benchmarks.sentences import SENTENCES
from maskov.energies import Norm
from maskov.errors import InputError
from maskov.models import HuggingFaceModel
from maskov.scoring import score_texts

SCORERS = ("maskov", "minicons")

Scorer = Callable[[Sequence[str]], list[float]]

# Batch sizes (sentences) for minicons; the fastest counts.
_BATCHES = {"cuda": (8, 32, 128)}
_CPU_BATCHES = (1, 8)
_PROBE = 4


def measure_scoring(model: HuggingFaceModel, name: str, seconds: float) -> dict[str, Any]:
    """Score as many sentences as the time allows, repeatedly."""
    texts = [text for text in SENTENCES if len(model.encode(text)) <= model.max_length]
    if not texts:
        raise InputError(f"'{model.name}' is too short for every sentence of the benchmark.")
    if name == "maskov":
        scorers: dict[int | None, Scorer] = {None: _maskov(model)}
    else:
        try:
            scorers = _minicons(model)
        except ImportError:
            missing = "minicons is not installed: pip install '.[reference]'"
            return {"name": name, "missing": missing}
    timed = [
        _time(scorer, texts, seconds / len(scorers)) | {"batch": batch}
        for batch, scorer in scorers.items()
    ]
    best = max(timed, key=lambda timing: float(timing["sentences_per_second"]))
    tokens = sum(len(model.encode(text)) for text in texts[: best["sentences"]])
    each = tokens / best["sentences"]
    return {
        "name": name,
        **best,
        "tokens": tokens,
        "tokens_per_second": best["sentences_per_second"] * each,
    }


def _time(scorer: Scorer, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """Estimate how many texts fit into the time, then score them until it is up."""
    scorer(texts[:1])
    begin = time.perf_counter()
    scorer(texts[:_PROBE])
    probe = time.perf_counter() - begin
    count = min(len(texts), max(_PROBE, int(_PROBE * seconds / probe)))
    rounds, energies, begin = 0, list[float](), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds or not rounds:
        energies = scorer(texts[:count])
        rounds += 1
    return {
        "seconds": elapsed,
        "sentences": count,
        "rounds": rounds,
        "sentences_per_second": rounds * count / elapsed,
        "energies": energies,
    }


def _maskov(model: HuggingFaceModel) -> Scorer:
    def scorer(texts: Sequence[str]) -> list[float]:
        return [scored.energy for scored in score_texts(model, texts, Norm())]

    return scorer


def _minicons(model: HuggingFaceModel) -> dict[int | None, Scorer]:
    """Return minicons' scorer at several batch sizes, used as its documentation shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raised by minicons at import
        from minicons.scorer import MaskedLMScorer

    other = MaskedLMScorer(
        model.network, str(model.device), tokenizer=model.tokenizer, PLL_metric="original"
    )

    def total(terms: torch.Tensor) -> float:
        return float(terms.double().sum())

    def make_scorer(batch: int) -> Scorer:
        def scorer(texts: Sequence[str]) -> list[float]:
            energies: list[float] = []
            for begin in range(0, len(texts), batch):
                # Encoded here: its own call uses a method that transformers 5 removed.
                encoded = model.tokenizer(list(texts[begin : begin + batch]), padding="longest")
                energies += [-value for value in other.sequence_score(encoded, reduction=total)]
            return energies

        return scorer

    sizes = _BATCHES.get(model.device.type, _CPU_BATCHES)
    return {size: make_scorer(size) for size in sizes}
