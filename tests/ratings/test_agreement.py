"""Krippendorff's alpha against published values and against a count of all pairs."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from maskov.ui.ratings.agreement import ordinal_alpha

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section D: four observers,
# twelve units, missing values; he gives 0.815 for ordinal data.
OBSERVERS = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def columns(rows):
    return [[int(value) for value in column if value != "."] for column in zip(*rows, strict=True)]


def test_the_published_example_with_missing_data():
    assert ordinal_alpha(columns(OBSERVERS)) == pytest.approx(0.815, abs=5e-4)


def by_pairs(items):
    """Work it out from the definition: mean distances of pairs within items, and of all pairs."""
    items = [ratings for ratings in items if len(ratings) > 1]
    pool = [rating for ratings in items for rating in ratings]

    def distance(c, k):
        low, high = min(c, k), max(c, k)
        between = sum(low <= rating <= high for rating in pool)
        return (between - (pool.count(low) + pool.count(high)) / 2) ** 2

    observed = sum(
        distance(a, b) / (len(ratings) - 1)
        for ratings in items
        for a, b in permutations(ratings, 2)
    ) / len(pool)
    expected = sum(distance(a, b) for a, b in permutations(pool, 2))
    return 1 - observed / (expected / (len(pool) * (len(pool) - 1)))


@pytest.mark.parametrize("seed", range(10))
def test_against_all_pairs(seed):
    generator = random.Random(seed)
    items = [
        [generator.randint(1, 4) for _ in range(generator.randint(0, 4))] for _ in range(15)
    ] + [[1, 2], [3, 4]]
    assert ordinal_alpha(items) == pytest.approx(by_pairs(items), abs=1e-12)


def test_by_hand():
    assert ordinal_alpha([[1, 1], [4, 4], [2, 2, 2]]) == 1
    # One of each rank, always apart: the pairs that occur are the only ones there are.
    assert ordinal_alpha([[1, 2]]) == pytest.approx(0)
    # Ratings 1 1 2 2, always apart: of 12 ordered pairs 8 differ, so 1 − 1 / (8/12).
    assert ordinal_alpha([[1, 2], [2, 1]]) == pytest.approx(-0.5)


def test_the_order_of_raters_and_single_ratings_do_not_matter():
    items = [[1, 2, 4], [2, 2], [3, 4, 4]]
    turned = [list(reversed(ratings)) for ratings in items]
    assert ordinal_alpha(items) == ordinal_alpha(turned) == ordinal_alpha([*items, [1], []])


@pytest.mark.parametrize("items", [[], [[]], [[3]], [[1], [4]], [[2, 2], [2, 2]], [[2, 2], [4]]])
def test_nothing_to_agree_on_is_no_number(items):
    assert ordinal_alpha(items) is None
