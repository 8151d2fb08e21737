"""The tables of the data folder, and sequences that may change at some places only."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from maskov import AllowedTokens


def rows_of(file: Path) -> list[dict[str, str]]:
    """Read a table."""
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def spread(count: int, most: int) -> list[int]:
    """Return evenly spaced indices."""
    return sorted({round(index) for index in np.linspace(0, count - 1, min(most, count))})


def frozen(sequence: str, letters: dict[int, str]) -> AllowedTokens:
    """Allow some letters at some places, counted from 0, and the sequence's own elsewhere."""
    return AllowedTokens(
        tuple((at + 1, at + 1, letters.get(at, own)) for at, own in enumerate(sequence))
    )
