"""Diversity of texts: distinct n-grams, and the BLEU of each text against the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from maskov.evaluation.estimates import Estimate, mean

# Self-BLEU grows with the number of references; the cap makes large sets comparable.
MAX_SENTENCES = 500
_ORDER = 4


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Return the fraction of distinct n-grams of words; n-grams do not cross sentences."""
    unique: set[tuple[str, ...]] = set()
    total = 0
    for text in texts:
        grams = _ngrams(text.split(), n)
        unique.update(grams)
        total += len(grams)
    return len(unique) / total if total else None


def subset(texts: Sequence[str], size: int = MAX_SENTENCES) -> list[str]:
    """Return at most `size` evenly spaced texts."""
    if len(texts) <= size:
        return list(texts)
    return [texts[index * len(texts) // size] for index in range(size)]


def self_bleu(texts: Sequence[str]) -> Estimate:
    """Return the mean sentence BLEU-4 of each text against all the others, 0 to 100.

    Tokens and scores are sacreBLEU's. The counting is done here: BLEU needs the largest count of
    each n-gram over the references, and the largest over all other texts is the largest or the
    second largest over all texts. So each text is counted once rather than once per other text.
    """
    from sacrebleu.metrics.bleu import BLEU

    tokenise = BLEU(effective_order=True).tokenizer
    words = [tokenise(text.rstrip()).split() for text in texts]
    counts = [Counter(gram for n in range(_ORDER) for gram in _ngrams(w, n + 1)) for w in words]
    first, second = _two_largest(counts)
    scores = []
    for index, own in enumerate(counts):
        correct, total = [0] * _ORDER, [0] * _ORDER
        for gram, count in own.items():
            others_count = second[gram] if count == first[gram] else first[gram]
            correct[len(gram) - 1] += min(count, others_count)
            total[len(gram) - 1] += count
        size = len(words[index])
        others = (len(other) for number, other in enumerate(words) if number != index)
        nearest = min(others, key=lambda length: (abs(length - size), length))
        score = BLEU.compute_bleu(
            correct, total, size, nearest, smooth_method="exp", effective_order=True
        )
        scores.append(score.score)
    return mean(np.array(scores))


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _two_largest(
    counts: Sequence[Counter[tuple[str, ...]]],
) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """Return the largest and the second largest count of each n-gram in any text."""
    first: Counter[tuple[str, ...]] = Counter()
    second: Counter[tuple[str, ...]] = Counter()
    for text in counts:
        for gram, count in text.items():
            if count > first[gram]:
                first[gram], count = count, first[gram]
            second[gram] = max(second[gram], count)
    return first, second
