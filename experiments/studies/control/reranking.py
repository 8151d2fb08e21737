"""Pick by one classifier more than the chains were sampled with: a bag of words of half a.

A chain's candidates are the text of lowest energy that it had and its last one. The energy that
picks is that of the chains plus `weight` · −log p(label | text) of the bag.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.control.bag import Bag
from experiments.studies.control.rewriting import LABELS, PICKS, scores
from maskov.rewriting import Rewriting

NAME = "bag"


def rerank(work: Path, results: Path, name: str, weight: float) -> None:
    """Write the rewritings of a setting, picked by the bag too, as NAME+bagWEIGHT."""
    bag = Bag.load(work / "models" / "bag-a")
    record = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    new = f"{name}+{NAME}{weight:g}"
    record |= {"name": new, "picked_by": f"the energy + {weight:g} * bag", "held": {}}
    picked: dict[str, list[list[Rewriting]]] = {pick: [] for pick in PICKS}
    for held in ("", ".held"):
        if not (results / f"{name}{held}.last.0.jsonl").exists():
            continue
        for number in (0, 1):
            rows = {
                pick: _judged(
                    results / f"{name}{held}.{pick}.{number}.jsonl", bag, LABELS[1 - number], weight
                )
                for pick in PICKS
            }
            pairs = zip(rows["lowest"], rows["last"], strict=True)
            rows["lowest"] = [min(pair, key=_energy) for pair in pairs]
            for pick in PICKS:
                text = "".join(row.to_json() + "\n" for row in rows[pick])
                (results / f"{new}{held}.{pick}.{number}.jsonl").write_text(text, encoding="utf-8")
                if held:
                    picked[pick].append(_of_lines(rows[pick], record["chains"], pick))
    if picked["lowest"]:
        tuner = Bag.load(work / "models" / "bag")
        sources = [[row.source for row in half] for half in picked["lowest"]]
        for pick in PICKS:
            texts = [[row.text for row in half] for half in picked[pick]]
            record["held"][pick] = scores(tuner, texts, sources)
    (results / f"{new}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps({"name": new, "held": record["held"]}))


def _judged(file: Path, bag: Bag, label: str, weight: float) -> list[Rewriting]:
    """Return rewritings with the energy of the bag, and in that of the target."""
    data: list[dict[str, Any]] = [
        json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()
    ]
    rows = [Rewriting(**row) for row in data]
    odds = bag.log_odds([row.text for row in rows]) * (1 if label == bag.labels[1] else -1)
    found = []
    for row, value in zip(rows, np.logaddexp(0.0, -odds).tolist(), strict=True):
        energies = row.energies | {"target": row.energies["target"] + weight * value, NAME: value}
        found.append(replace(row, energies=energies))
    return found


def _energy(row: Rewriting) -> float:
    return row.energies["target"]


def _of_lines(rows: list[Rewriting], chains: int, pick: str) -> list[Rewriting]:
    """Return one rewriting of each line: of lowest energy, or of the first chain."""
    lines = [rows[first : first + chains] for first in range(0, len(rows), chains)]
    return [min(one, key=_energy) if pick == "lowest" else one[0] for one in lines]
