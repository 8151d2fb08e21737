"""Humanisation: mutations ranked by models, precision and recall against published systems.

Weights of a product of rankings are chosen on every other pair and reported on the rest.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.antibody.panel import PUBLISHED, Curve, Panel
from experiments.studies.antibody.rankings import Ranking, product

# Published systems whose numbers of mutations the choice looks at.
POINTS = ("humab", "sapiens1", "sapiens2", "sapiens3")
# Exponents of each ranking in a product.
GRID = (0.0, 0.5, 1.0, 2.0)

Rankings = dict[str, Ranking]


def save(file: Path, rankings: Rankings) -> None:
    """Write a ranking of all chains."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        np.savez(out, **rankings)  # type: ignore[arg-type]


def load(folder: Path) -> dict[str, Rankings]:
    """Read all rankings of a folder, by file name."""
    found = {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            found[file.stem] = dict(arrays)
    return found


def combined(rankings: dict[str, Rankings], weights: dict[str, float]) -> Rankings:
    """Return the product of rankings for each chain."""
    used = {name: weight for name, weight in weights.items() if weight}
    chains = next(iter(rankings.values()))
    return {
        chain: product([rankings[name][chain] for name in used], list(used.values()))
        for chain in chains
    }


def gain(panel: Panel, curve: Curve, published: dict[str, Any], part: str) -> float:
    """Return the mean difference in precision at the numbers of mutations of published systems."""
    rows = [published[name][part] for name in POINTS]
    return float(np.mean([curve.at(row["mutations"])[0] - row["precision"] for row in rows]))


def choose(
    panel: Panel, rankings: dict[str, Rankings], published: dict[str, Any]
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Return the weights with the largest gain on the pairs to choose on, and all that were tried.

    Only the ratios of weights matter, so their largest is 1.
    """
    tried, seen = [], set()
    for values in itertools.product(GRID, repeat=len(rankings)):
        largest = max(values)
        scaled = tuple(value / largest for value in values) if largest else ()
        if not scaled or scaled in seen:
            continue
        seen.add(scaled)
        weights = dict(zip(rankings, scaled, strict=True))
        curve = Curve.of(panel, combined(rankings, weights), panel.parts["chosen on"])
        tried.append({"weights": weights, "gain": gain(panel, curve, published, "chosen on")})
    best = max(tried, key=lambda one: (one["gain"], -sum(map(bool, one["weights"].values()))))
    return best["weights"], tried


def humanise(panel: Panel, rankings: dict[str, Rankings]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return curves and points by part, and the sequences of the best balance."""
    published = panel.published()
    weights, tried = choose(panel, rankings, published)
    systems = {**rankings, "product": combined(rankings, weights)}
    curves = {
        name: {part: Curve.of(panel, system, names) for part, names in panel.parts.items()}
        for name, system in systems.items()
    }
    rows = []
    for point, part in itertools.product(PUBLISHED, panel.parts):
        theirs = published[point][part]
        row = {"system": point, "part": part, **theirs}
        for name, by_part in curves.items():
            precision, recall = by_part[part].at(theirs["mutations"])
            row[name] = {"precision": round(precision, 4), "recall": round(recall, 4)}
        rows.append(row)
    ours = curves["product"]
    share = best_share(ours["chosen on"])
    made = ours["all"].sequences(panel, round(share * len(ours["all"].right)))
    found = {
        "weights": weights,
        "gains": {
            name: {part: round(gain(panel, curve, published, part), 4) for part, curve in c.items()}
            for name, c in curves.items()
        },
        "tried": len(tried),
        "share_of_places": share,
        "kept": {part: panel.judged(made, names) for part, names in panel.parts.items()},
        "points": rows,
        "curves": {
            name: {part: curve.right.tolist() for part, curve in by_part.items()}
            for name, by_part in curves.items()
        },
        "wanted": {part: curve.wanted for part, curve in ours.items()},
    }
    return found, made


def best_share(curve: Curve) -> float:
    """Return the share of places whose mutations balance precision and recall best."""
    counts = np.arange(1, len(curve.right) + 1)
    balance = 2 * curve.right / (counts + curve.wanted)
    return math.floor(10_000 * counts[int(balance.argmax())] / len(curve.right)) / 10_000
