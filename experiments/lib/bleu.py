"""Corpus BLEU from cached sentence counts.

Chains repeat texts from epoch to epoch, so each sentence is counted once. The score equals
sacreBLEU's corpus BLEU with default settings and is computed from its own sentence counts. The
counts per sentence also give the standard error of a difference between two systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from maskov.errors import InputError

_Counts = tuple[tuple[int, ...], tuple[int, ...], int, int]
_RESAMPLES = 1000


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return corpus BLEU, 0 to 100, with one reference each."""
    rows = [
        _counts(text, reference) for text, reference in zip(hypotheses, references, strict=True)
    ]
    matched = [sum(row[0][n] for row in rows) for n in range(4)]
    total = [sum(row[1][n] for row in rows) for n in range(4)]
    lengths = sum(row[2] for row in rows), sum(row[3] for row in rows)
    return float(_metric().compute_bleu(matched, total, *lengths, smooth_method="exp").score)


def sentence_counts(corpora: Sequence[Sequence[str]], references: Sequence[str]) -> list[list[int]]:
    """Return BLEU's counts for each sentence, summed over several translations of it.

    A row contains the matching n-grams (n = 1 to 4), all n-grams, and both lengths.
    """
    rows = np.zeros((len(references), 10), dtype=np.int64)
    for texts in corpora:
        for row, text, reference in zip(rows, texts, references, strict=True):
            matched, total, length, reference_length = _counts(text, reference)
            row += [*matched, *total, length, reference_length]
    counts: list[list[int]] = rows.tolist()
    return counts


def paired_difference(
    first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]
) -> tuple[float, float]:
    """Return the BLEU of the second system minus that of the first, and its standard error.

    The error is a paired bootstrap: both systems use the same resampled sentences, which removes
    the variation in difficulty between sentences.
    """
    counts = np.array(first, dtype=float), np.array(second, dtype=float)
    weights = _resampled(len(counts[0]))
    gap = _bleu(counts[1].sum(0)) - _bleu(counts[0].sum(0))
    gaps = _bleu(weights @ counts[1]) - _bleu(weights @ counts[0])
    return float(gap), float(gaps.std(ddof=1))


def bleu_error(counts: Sequence[Sequence[int]]) -> float:
    """Return the standard error of BLEU over sentences, by the bootstrap."""
    rows = np.array(counts, dtype=float)
    return float(_bleu(_resampled(len(rows)) @ rows).std(ddof=1))


@lru_cache(maxsize=8)
def _resampled(count: int) -> np.ndarray:
    """Return how often each of so many sentences is in each resample."""
    shares = np.full(count, 1 / count)
    return np.random.default_rng(0).multinomial(count, shares, _RESAMPLES).astype(float)


def _bleu(counts: np.ndarray) -> np.ndarray:
    """Return BLEU of summed counts, smoothed as in sacreBLEU where nothing matches."""
    matched, total, length, reference_length = np.split(counts, (4, 8, 9), axis=-1)
    # The k-th order without a match counts as 1 / 2^k of one.
    none = matched == 0
    share = np.where(none, 0.5 ** none.cumsum(-1), matched) / np.maximum(total, 1)
    brevity = np.minimum(0.0, 1 - reference_length / np.maximum(length, 1))
    score: np.ndarray = 100 * np.exp(np.log(share).mean(-1) + brevity[..., 0])
    return score


def signature() -> str:
    """Return sacreBLEU's signature."""
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
        raise InputError("BLEU needs sacreBLEU: pip install '.[evaluate]'.") from error
    return BLEU
