"""Agreement of raters: Krippendorff's alpha for ordinal scales, with missing ratings.

Alpha is 1 − D_o / D_e (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"). Every
item rated m ≥ 2 times adds its ordered pairs of ratings to a coincidence table, each with weight
1 / (m − 1), so that every rating counts once. D_o is the mean squared distance of the observed
pairs, D_e that of pairs drawn from all ratings. The distance between ranks c < k is the number of
ratings from c to k, counting those at c and k by half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def ordinal_alpha(items: Iterable[Sequence[int]]) -> float | None:
    """Return alpha, given the ratings of each item in any order; some raters may be missing.

    1 is perfect agreement, 0 agreement by chance. None if no item was rated twice or all ratings
    are equal, where alpha is undefined.
    """
    paired = [list(ratings) for ratings in items if len(ratings) > 1]
    values = sorted({rating for ratings in paired for rating in ratings})
    if len(values) < 2:
        return None
    place = {value: number for number, value in enumerate(values)}
    coincidences = np.zeros((len(values), len(values)))
    for ratings in paired:
        counts = np.bincount([place[rating] for rating in ratings], minlength=len(values))
        pairs = np.outer(counts, counts) - np.diag(counts)  # no rating is paired with itself
        coincidences += pairs / (len(ratings) - 1)
    totals = coincidences.sum(axis=0)
    middles = np.cumsum(totals) - totals / 2
    distances = (middles[:, None] - middles[None, :]) ** 2
    n = totals.sum()
    expected = (np.outer(totals, totals) - np.diag(totals)) / (n - 1)
    return float(1 - (coincidences * distances).sum() / (expected * distances).sum())
