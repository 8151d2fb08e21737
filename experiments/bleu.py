"""Corpus BLEU many times over: what sacreBLEU counts in a sentence is counted once and kept.

Chains repeat themselves from epoch to epoch. The score is that of sacreBLEU's corpus BLEU by
default settings, put together from its own sentence counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from maskov.errors import InputError

_Counts = tuple[tuple[int, ...], tuple[int, ...], int, int]


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return corpus BLEU, 0 to 100, with one reference each."""
    rows = [
        _counts(text, reference) for text, reference in zip(hypotheses, references, strict=True)
    ]
    matched = [sum(row[0][n] for row in rows) for n in range(4)]
    total = [sum(row[1][n] for row in rows) for n in range(4)]
    lengths = sum(row[2] for row in rows), sum(row[3] for row in rows)
    return float(_metric().compute_bleu(matched, total, *lengths, smooth_method="exp").score)


def signature() -> str:
    """Return how BLEU is computed, in sacreBLEU's words."""
    metric = _metric()(force=True)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature().format())


@lru_cache(maxsize=200_000)
def _counts(text: str, reference: str) -> _Counts:
    score = _metric()(effective_order=True).sentence_score(text, [reference])
    return tuple(score.counts), tuple(score.totals), score.sys_len, score.ref_len


def _metric():  # type: ignore[no-untyped-def]
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise InputError("BLEU needs sacreBLEU: pip install 'maskov[evaluate]'.") from error
    return BLEU
