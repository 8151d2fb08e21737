"""Minimum Bayes risk: of some texts, the one most like all of them."""

from __future__ import annotations

from collections.abc import Sequence

from maskov.errors import InputError


def most_alike(texts: Sequence[str]) -> int:
    """Return which text is the most similar to all others by chrF, the first of equals."""
    if len(texts) < 2:
        return 0
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise InputError("--pick mbr needs sacreBLEU: pip install '.[evaluate]'.") from error
    metric = CHRF()
    # Each distinct text is compared once.
    distinct = list(dict.fromkeys(texts))

    def gain(text: str) -> float:
        alike = (metric.sentence_score(text, [other]).score for other in distinct)
        return float(sum(texts.count(o) * a for o, a in zip(distinct, alike, strict=True)))

    return texts.index(max(distinct, key=gain))
