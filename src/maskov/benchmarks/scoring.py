"""The scoring rows: E_norm of the same sentences by maskov and by minicons."""

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
from maskov.scoring import score

SCORERS = ("maskov", "minicons")

Scorer = Callable[[Sequence[str]], list[float]]

# Sentences that minicons is given at a time; the fastest counts.
_BATCHES = {"cuda": (8, 32, 128)}
_BATCHES_ELSEWHERE = (1, 8)
_PROBE = 4


def measure_scoring(model: HuggingFaceModel, name: str, seconds: float) -> dict[str, Any]:
    """Score as many of the sentences as the time allows, as often as it allows."""
    texts = [text for text in SENTENCES if len(model.encode(text)) <= model.max_length]
    if not texts:
        raise InputError(f"'{model.name}' is too short for any of the benchmark's sentences.")
    if name == "maskov":
        scorers: dict[int | None, Scorer] = {None: _maskov(model)}
    else:
        try:
            scorers = _minicons(model)
        except ImportError:
            missing = "minicons is not installed: pip install 'maskov[reference]'"
            return {"name": name, "missing": missing}
    timed = [
        _time(work, texts, seconds / len(scorers)) | {"batch": batch}
        for batch, work in scorers.items()
    ]
    best = max(timed, key=lambda found: float(found["sentences_per_second"]))
    tokens = sum(len(model.encode(text)) for text in texts[: best["sentences"]])
    each = tokens / best["sentences"]
    return {
        "name": name,
        **best,
        "tokens": tokens,
        "tokens_per_second": best["sentences_per_second"] * each,
    }


def _time(work: Scorer, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """Find out how many texts there is time for, then score them until it is over."""
    work(texts[:1])
    begun = time.perf_counter()
    work(texts[:_PROBE])
    probe = time.perf_counter() - begun
    count = min(len(texts), max(_PROBE, int(_PROBE * seconds / probe)))
    rounds, energies, begun = 0, list[float](), time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds or not rounds:
        energies = work(texts[:count])
        rounds += 1
    return {
        "seconds": elapsed,
        "sentences": count,
        "rounds": rounds,
        "sentences_per_second": rounds * count / elapsed,
        "energies": energies,
    }


def _maskov(model: HuggingFaceModel) -> Scorer:
    def work(texts: Sequence[str]) -> list[float]:
        return [found.energy for found in score(model, texts, Norm())]

    return work


def _minicons(model: HuggingFaceModel) -> dict[int | None, Scorer]:
    """Return minicons' scorer at several batch sizes, each as its documentation has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, at import
        from minicons.scorer import MaskedLMScorer

    other = MaskedLMScorer(
        model.network, str(model.device), tokenizer=model.tokenizer, PLL_metric="original"
    )

    def total(terms: torch.Tensor) -> float:
        return float(terms.double().sum())

    def scorer(batch: int) -> Scorer:
        def work(texts: Sequence[str]) -> list[float]:
            found: list[float] = []
            for begin in range(0, len(texts), batch):
                # Encoded for it, since it would call what transformers 5 has dropped.
                coded = model.tokenizer(list(texts[begin : begin + batch]), padding="longest")
                found += [-value for value in other.sequence_score(coded, reduction=total)]
            return found

        return work

    sizes = _BATCHES.get(model.device.type, _BATCHES_ELSEWHERE)
    return {size: scorer(size) for size in sizes}
