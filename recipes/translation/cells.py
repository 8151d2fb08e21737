"""Choose few batch shapes, because every new shape costs a GPU time for kernels and memory.

Lengths are counted in units of a few tokens; a cell is a pair of lengths, source and target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int64]


def choose(cells: Cells, most: int, a_batch: float) -> Cells:
    """Return at most `most` shapes that fit all cells with little padding.

    Pairs of shapes are merged greedily into the smallest shape that fits both, by least padding.
    Merging continues below `most` while it pads less than half a batch (`a_batch`, in units),
    which is about what filling up the last batch of each shape costs.
    """
    shapes, counts = np.unique(cells, axis=0, return_counts=True)
    counts = counts.astype(np.float64)
    while len(shapes) > 1:
        both = np.maximum(shapes[:, None], shapes[None])
        more = both.sum(2) - shapes.sum(1)[:, None]
        padded = more * counts[:, None]
        padded = padded + padded.T
        np.fill_diagonal(padded, np.inf)
        first, other = np.unravel_index(padded.argmin(), padded.shape)
        if len(shapes) <= most and padded[first, other] > a_batch / 2:
            break
        shapes[first] = both[first, other]
        counts[first] += counts[other]
        shapes, counts = np.delete(shapes, other, axis=0), np.delete(counts, other)
    return shapes


def table(shapes: Cells, largest: tuple[int, int]) -> NDArray[np.int64]:
    """Return the index of the smallest shape that fits a cell, for each cell up to `largest`."""
    sizes = np.stack(np.meshgrid(*(np.arange(end + 1) for end in largest), indexing="ij"), 2)
    holds = (shapes[:, None, None] >= sizes[None]).all(3)
    cost = np.where(holds, shapes.sum(1)[:, None, None], np.iinfo(np.int64).max)
    assert holds.any(0).all()
    smallest: NDArray[np.int64] = cost.argmin(0)
    return smallest
