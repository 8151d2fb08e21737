"""What a run from FASTA did to its parents: letters, mutations, distances, energies."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskov.config import Manifest
from maskov.fasta import letter
from maskov.runs import Sample
from maskov.ui.report.curves import spaced

# Parents with charts of their own, and samples whose distances are compared.
MOST_PARENTS = 8
MOST_COMPARED = 500
# Mutations that are listed, the most frequent ones.
MOST_LISTED = 12


@dataclass(frozen=True)
class Column:
    """The letters of the samples at one position, the most frequent first, and their shares.

    `bits` is what the position is known by: log2 of the letters seen anywhere less the entropy.
    """

    letters: list[str]
    shares: list[float]
    bits: float


@dataclass(frozen=True)
class ByCount:
    """Energies by the number of mutations: how many samples, their mean, and the middle 80 %."""

    count: int
    samples: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Family:
    """The samples of one parent.

    `changed` is the share of samples that differ from the parent at each position. `distances` are
    the shares of pairs of samples that differ at 0, 1, 2 … positions, `to_parent` the same of
    samples and their parent. `frequent` are the mutations that most samples have.
    """

    name: str
    parent: str
    samples: int
    columns: list[Column]
    changed: list[float]
    frequent: list[tuple[str, float]]
    mean_mutations: float
    mean_distance: float | None
    distances: list[float]
    to_parent: list[float]
    energies: list[ByCount]


def families(manifest: Manifest, samples: Sequence[Sample]) -> list[Family]:
    """Return what became of each parent, where lengths are fixed; no more than a page shows."""
    groups: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.mutations is not None:
            groups[sample.template].append(sample)
    names = manifest.inputs.names or ()
    return [
        _family(names[line] if line < len(names) else str(line), members)
        for line, members in sorted(groups.items())[:MOST_PARENTS]
        if len({len(one.tokens) for one in members}) == 1
    ]


def _family(name: str, samples: list[Sample]) -> Family:
    rows = [[letter(token)[:1] or "?" for token in sample.tokens] for sample in samples]
    table = np.array(rows)
    kinds = max(len(set(table.ravel().tolist())), 2)
    columns = [_column(Counter(column.tolist()), kinds) for column in table.T]
    parent = _parent(samples[0], rows[0])
    changed = (table != np.array(parent)).mean(0)
    counts = [len(sample.mutations or ()) for sample in samples]
    seen = Counter(name for sample in samples for name in sample.mutations or ())
    chosen = table[spaced(len(table), MOST_COMPARED)]
    between = [
        int(count) for at in range(1, len(chosen)) for count in (chosen[:at] != chosen[at]).sum(1)
    ]
    return Family(
        name=name,
        parent="".join(parent),
        samples=len(samples),
        columns=columns,
        changed=changed.tolist(),
        frequent=[(one, count / len(samples)) for one, count in _first(seen)],
        mean_mutations=float(np.mean(counts)),
        mean_distance=float(np.mean(between)) if between else None,
        distances=_shares(between),
        to_parent=_shares(counts),
        energies=_by_count(counts, [sample.energy_norm for sample in samples]),
    )


def _column(counts: Counter[str], kinds: int) -> Column:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shares = [count / counts.total() for _, count in ordered]
    entropy = -sum(share * math.log2(share) for share in shares)
    return Column([name for name, _ in ordered], shares, math.log2(kinds) - entropy)


def _parent(sample: Sample, row: list[str]) -> list[str]:
    """Return the parent of a sample: its letters with its mutations undone."""
    parent = list(row)
    for mutation in sample.mutations or ():
        place = mutation[1:-1]
        if place.isdecimal() and 1 <= int(place[:9]) <= len(parent):
            parent[int(place[:9]) - 1] = mutation[0]
    return parent


def _first(seen: Counter[str]) -> list[tuple[str, int]]:
    return sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:MOST_LISTED]


def _shares(counts: Sequence[int]) -> list[float]:
    if not counts:
        return []
    found = np.bincount(np.array(counts))
    return [float(share) for share in found / found.sum()]


def _by_count(counts: Sequence[int], energies: Sequence[float]) -> list[ByCount]:
    groups: dict[int, list[float]] = defaultdict(list)
    for count, energy in zip(counts, energies, strict=True):
        if math.isfinite(energy):
            groups[count].append(energy)
    return [
        ByCount(
            count, len(values), float(np.mean(values)), *np.quantile(values, (0.1, 0.9)).tolist()
        )
        for count, values in sorted(groups.items())
    ]
