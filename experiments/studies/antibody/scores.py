"""Pseudo-perplexities of antibodies against published ones."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import maskov
from experiments.studies.antibody.data import rows_of, spread
from maskov import Record
from maskov.models import MaskedModel

# Chains scored between two writes of what is known.
CHUNK = 8


def published_of(data: Path, rows: int) -> dict[str, float]:
    """Return the published pseudo-perplexity of each different chain of evenly spaced rows."""
    table = rows_of(data / "d44_antiberty_perplexity.csv")
    return {
        table[index][chain]: float(table[index][f"{chain}_perplexity"])
        for index in spread(len(table), rows)
        for chain in ("heavy", "light")
    }


def perplexities(model: MaskedModel, sequences: list[str], known: Path) -> dict[str, float]:
    """Score what the file does not know yet, writing as it goes; return all that is known."""
    found: dict[str, float] = json.loads(known.read_text()) if known.exists() else {}
    left = [one for one in sequences if one not in found]
    for first in range(0, len(left), CHUNK):
        records = [Record(one, one) for one in left[first : first + CHUNK]]
        for one in maskov.score(model, records, maskov.Norm()):
            found[str(one.name)] = math.exp(one.energy / len(one.terms))
        known.parent.mkdir(parents=True, exist_ok=True)
        known.with_suffix(".tmp").write_text(json.dumps(found))
        known.with_suffix(".tmp").replace(known)
    return found


def compare(data: Path, model: MaskedModel, rows: int, work: Path) -> dict[str, Any]:
    """Compare pseudo-perplexities exp(E_norm / length) with the published ones."""
    published = published_of(data, rows)
    began = time.monotonic()
    ours = perplexities(model, list(published), work / "perplexities.json")
    relative = {one: abs(ours[one] - value) / value for one, value in published.items()}
    worst = max(relative, key=lambda one: relative[one])
    return {
        "sequences": len(published),
        "largest_relative_difference": relative[worst],
        "mean_relative_difference": float(np.mean(list(relative.values()))),
        "largest": {"ours": ours[worst], "published": published[worst]},
        "seconds": round(time.monotonic() - began, 1),
    }
