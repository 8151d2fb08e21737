"""How varied texts are: distinct n-grams, and the BLEU of each against the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from maskov.evaluation.estimates import Estimate, mean

# Self-BLEU grows with the number of references, so a cap also makes large sets comparable.
MOST_SENTENCES = 500
_ORDER = 4


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Return unique over all n-grams of words; n-grams do not reach across sentences."""
    unique: set[tuple[str, ...]] = set()
    total = 0
    for text in texts:
        grams = _ngrams(text.split(), n)
        unique.update(grams)
        total += len(grams)
    return len(unique) / total if total else None


def spread(texts: Sequence[str], most: int = MOST_SENTENCES) -> list[str]:
    """Return at most so many texts, evenly spaced."""
    if len(texts) <= most:
        return list(texts)
    return [texts[index * len(texts) // most] for index in range(most)]


def self_bleu(texts: Sequence[str]) -> Estimate:
    """Return the mean sentence BLEU-4 of each text against all the others, 0 to 100.

    The tokens and the score are sacreBLEU's. The counting is done here: a reference counts only
    through the most often it has an n-gram, and "the most of all but me" is the first or the
    second of all, so that each text is read once instead of once for every other one.
    """
    from sacrebleu.metrics.bleu import BLEU

    tokenise = BLEU(effective_order=True).tokenizer
    words = [tokenise(text.rstrip()).split() for text in texts]
    counts = [Counter(gram for n in range(_ORDER) for gram in _ngrams(w, n + 1)) for w in words]
    first, second = _two_most(counts)
    scores = []
    for own, mine in enumerate(counts):
        correct, total = [0] * _ORDER, [0] * _ORDER
        for gram, count in mine.items():
            elsewhere = second[gram] if count == first[gram] else first[gram]
            correct[len(gram) - 1] += min(count, elsewhere)
            total[len(gram) - 1] += count
        size = len(words[own])
        others = (len(other) for index, other in enumerate(words) if index != own)
        nearest = min(others, key=lambda length: (abs(length - size), length))
        score = BLEU.compute_bleu(
            correct, total, size, nearest, smooth_method="exp", effective_order=True
        )
        scores.append(score.score)
    return mean(np.array(scores))


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _two_most(
    counts: Sequence[Counter[tuple[str, ...]]],
) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """Return for each n-gram the most and the second most that any one text has of it."""
    first: Counter[tuple[str, ...]] = Counter()
    second: Counter[tuple[str, ...]] = Counter()
    for each in counts:
        for gram, count in each.items():
            if count > first[gram]:
                first[gram], count = count, first[gram]
            second[gram] = max(second[gram], count)
    return first, second
