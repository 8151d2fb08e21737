"""The samples of a run: filtered, sorted, similar ones of a chain in groups, a page at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from maskov.runs import Run, Sample
from maskov.ui.detokenise import detokenised
from maskov.ui.report.formats import json_safe
from maskov.ui.report.samples import similar_groups
from maskov.ui.viewer.run_list import OpenedRun

SORTS = ("energy_raw", "energy_norm", "raw_per_token", "norm_per_token", "chain", "epoch")
_KEPT_RUNS = 4


@dataclass(frozen=True)
class SampleQuery:
    """Filter, order and page of samples.

    If `grouped`, similar samples of a chain are one; `group` asks for those of a group.
    """

    search: str = ""
    chain: int | None = None
    lowest: float | None = None
    highest: float | None = None
    sort: str = "energy_raw"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    grouped: bool = False
    group: int | None = None


class SampleLists:
    """The samples of runs; the groups of the latest runs are kept, since they take a while."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int, int], list[int]] = {}

    def of(self, opened: OpenedRun, query: SampleQuery) -> dict[str, Any]:
        """Return the samples of a run that match a query, and how many there are."""
        every = opened.run.samples
        key = (opened.id, opened.stamp, len(every))
        groups = self._groups.get(key) or similar_groups(every)
        self._groups[key] = groups
        while len(self._groups) > _KEPT_RUNS:
            self._groups.pop(next(iter(self._groups)), None)
        return _found(opened.run, every, groups, query)


def _found(run: Run, every: list[Sample], groups: list[int], query: SampleQuery) -> dict[str, Any]:
    matching = [
        (sample, group)
        for sample, group in zip(every, groups, strict=True)
        if _matches(sample, query) and query.group in (None, group)
    ]
    matching.sort(key=lambda one: _key(one[0], query.sort), reverse=query.descending)
    sizes = Counter(group for _, group in matching)
    rows = matching
    if query.grouped:  # the first of each group, in this order
        firsts: dict[int, tuple[Sample, int]] = {}
        for sample, group in matching:
            firsts.setdefault(group, (sample, group))
        rows = list(firsts.values())
    shown = rows[query.offset : query.offset + query.limit]
    return {
        "in_all": len(every),
        "found": len(matching),
        "rows": len(rows),
        "samples": [
            _to_json(run, sample)
            | {"group": group, "similar": sizes[group] - 1 if query.grouped else 0}
            for sample, group in shown
        ],
    }


def _to_json(run: Run, sample: Sample) -> dict[str, Any]:
    sources = run.manifest.inputs.sources
    return {
        **json_safe(asdict(sample)),
        "text": detokenised(sample.text, sample.tokens),
        "source": None if sources is None else sources[sample.template],
    }


def _matches(sample: Sample, query: SampleQuery) -> bool:
    by_norm = query.sort.startswith(("energy_norm", "norm"))
    energy = sample.energy_norm if by_norm else sample.energy_raw
    wanted = query.search.casefold()
    return (
        (
            wanted in sample.text.casefold()
            or wanted in detokenised(sample.text, sample.tokens).casefold()
        )
        and query.chain in (None, sample.chain)
        and (query.lowest is None or energy >= query.lowest)
        and (query.highest is None or energy <= query.highest)
    )


def _key(sample: Sample, sort: str) -> float:
    per_token = {"raw_per_token": sample.energy_raw, "norm_per_token": sample.energy_norm}
    if sort in per_token:
        return per_token[sort] / max(len(sample.ids), 1)
    return float(getattr(sample, sort))
