"""Which samples of a chain are nearly the same: a chain that moves slowly repeats itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from maskov.runs import Sample

# Samples are similar if at most one token in so many differs.
_ONE_IN = 4
# Groups of a chain that a sample is compared with, the latest first.
_COMPARED = 10


def similar_groups(samples: Sequence[Sample]) -> list[int]:
    """Return the group of each sample, a number; similar samples of a chain have the same."""
    leaders: dict[int, list[tuple[int, Sequence[int]]]] = defaultdict(list)
    numbers: list[int] = []
    count = 0
    for sample in samples:
        known = leaders[sample.chain]
        found = (
            number for number, ids in reversed(known[-_COMPARED:]) if are_similar(ids, sample.ids)
        )
        number = next(found, None)
        if number is None:
            number, count = count, count + 1
            known.append((number, sample.ids))
        numbers.append(number)
    return numbers


def are_similar(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether at most a quarter of the tokens differ.

    Of sequences of other lengths, the tokens between the first and the last difference count.
    """
    longest = max(len(one), len(other))
    if len(one) == len(other):
        differing = sum(a != b for a, b in zip(one, other, strict=True))
    else:
        shared = _shared(one, other)
        shared += _shared(one[shared:][::-1], other[shared:][::-1])
        differing = longest - shared
    return differing <= longest // _ONE_IN


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
