"""Which few shapes batches have, so that a GPU meets each of them often.

Every new shape costs a GPU time: kernels are chosen and memory is found for it. Lengths are counted
in units of a few tokens; a cell is a pair of such lengths, source and target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int64]


def choose(cells: Cells, most: int, a_batch: float) -> Cells:
    """Return at most `most` shapes that hold all of some cells with little padding.

    Two shapes become the smallest one that holds both, those first that this pads least. That goes
    on below `most` as long as it pads less than half a batch (`a_batch`, in the cells' units),
    which is about what the last batch of each shape has to be filled up with.
    """
    shapes, counts = np.unique(cells, axis=0, return_counts=True)
    counts = counts.astype(np.float64)
    while len(shapes) > 1:
        both = np.maximum(shapes[:, None], shapes[None])
        more = both.sum(2) - shapes.sum(1)[:, None]
        padded = more * counts[:, None]
        padded = padded + padded.T
        np.fill_diagonal(padded, np.inf)
        one, other = np.unravel_index(padded.argmin(), padded.shape)
        if len(shapes) <= most and padded[one, other] > a_batch / 2:
            break
        shapes[one] = both[one, other]
        counts[one] += counts[other]
        shapes, counts = np.delete(shapes, other, axis=0), np.delete(counts, other)
    return shapes


def table(shapes: Cells, largest: tuple[int, int]) -> NDArray[np.int64]:
    """Return the number of the smallest shape that holds a cell, for each up to `largest`."""
    sizes = np.stack(np.meshgrid(*(np.arange(end + 1) for end in largest), indexing="ij"), 2)
    holds = (shapes[:, None, None] >= sizes[None]).all(3)
    cost = np.where(holds, shapes.sum(1)[:, None, None], np.iinfo(np.int64).max)
    assert holds.any(0).all()
    found: NDArray[np.int64] = cost.argmin(0)
    return found
