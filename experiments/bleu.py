"""Corpus BLEU many times over: what sacreBLEU counts in a sentence is counted once and kept.

Chains repeat themselves from epoch to epoch. The score is that of sacreBLEU's corpus BLEU by
default settings, put together from its own sentence counts. Kept sentence by sentence, the counts
also tell how sure a difference between two ways to translate the same sentences is.
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
    """Return what BLEU counts in each sentence, added up over several translations of it.

    A row has the n-grams that match, one to four, those that there are, and both lengths.
    """
    rows = np.zeros((len(references), 10), dtype=np.int64)
    for texts in corpora:
        for row, text, reference in zip(rows, texts, references, strict=True):
            matched, total, length, wanted = _counts(text, reference)
            row += [*matched, *total, length, wanted]
    found: list[list[int]] = rows.tolist()
    return found


def paired_difference(
    first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]
) -> tuple[float, float]:
    """Return how much more BLEU the second has than the first, and its standard error.

    The error is over sentences: resamples of them, the same for both, so that how hard a sentence
    is does not count.
    """
    both = np.array(first, dtype=float), np.array(second, dtype=float)
    count = len(both[0])
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    gap = _bleu(both[1].sum(0)) - _bleu(both[0].sum(0))
    gaps = _bleu(drawn @ both[1]) - _bleu(drawn @ both[0])
    return float(gap), float(gaps.std(ddof=1))


def _bleu(counts: np.ndarray) -> np.ndarray:
    """Return BLEU of summed counts; where nothing matches, it is smoothed as sacreBLEU does."""
    matched, total, length, wanted = np.split(counts, (4, 8, 9), axis=-1)
    # The k-th order without a match counts as 1 / 2^k of one.
    none = matched == 0
    share = np.where(none, 0.5 ** none.cumsum(-1), matched) / np.maximum(total, 1)
    brevity = np.minimum(0.0, 1 - wanted / np.maximum(length, 1))
    score: np.ndarray = 100 * np.exp(np.log(share).mean(-1) + brevity[..., 0])
    return score


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
