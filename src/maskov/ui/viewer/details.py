"""The run list, the overview and the samples of a run, as JSON data for pages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskov.errors import MaskovError
from maskov.runs import Run, Sample
from maskov.ui.report import build
from maskov.ui.report.html import Page, shown_number, to_page
from maskov.ui.report.json_data import PAGE_DIGITS, json_safe
from maskov.ui.viewer.run_list import OpenedRun, RunList, open_run, stamp_of

SORTS = ("energy_raw", "energy_norm", "raw_per_token", "norm_per_token", "chain", "epoch")


@dataclass(frozen=True)
class SampleQuery:
    """Filter, order and page of samples."""

    search: str = ""
    chain: int | None = None
    lowest: float | None = None
    highest: float | None = None
    sort: str = "energy_raw"
    descending: bool = False
    offset: int = 0
    limit: int = 50


class RunSummaries:
    """A summary of each run, recomputed when the run has progressed or could not be read."""

    def __init__(self, run_list: RunList) -> None:
        self._runs = run_list
        self._cache: dict[str, tuple[int, dict[str, Any]]] = {}

    def all(self) -> list[dict[str, Any]]:
        """Return the summaries; an unreadable run has an `error`."""
        return [self._of(run_id, path) for run_id, path in self._runs.paths().items()]

    def _of(self, run_id: str, path: Path) -> dict[str, Any]:
        stamp = stamp_of(path)
        known = self._cache.get(run_id)
        if known is not None and known[0] == stamp:
            return known[1]
        summary = _summary(run_id, path)
        if "error" not in summary:
            self._cache[run_id] = stamp, summary
        return summary


def _summary(run_id: str, path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"id": run_id, "name": path.name, "folder": path.parent.name}
    try:
        return {**names, **_figures(open_run(path))}
    except MaskovError as error:
        return {**names, "error": str(error)}


def _figures(run: Run) -> dict[str, Any]:
    shown = (
        "model", "kernel", "energy", "chains", "epochs", "epochs_done", "acceptance_rate",
        "novel_rate", "energy_raw_mean", "energy_norm_mean", "leaves_invariant",
    )  # fmt: skip
    summary = run.summary().to_dict()
    figures = {name: summary[name] for name in shown}
    return json_safe({**figures, "created": run.manifest.created}, PAGE_DIGITS)  # type: ignore[no-any-return]


def overview(opened: OpenedRun, why_not: str | None) -> dict[str, Any]:
    """Return the run's report without samples, and why its chains cannot be replayed, if so."""
    report = build([opened.run], samples=0).runs[0]
    return {
        **json_safe(report, PAGE_DIGITS),
        "id": opened.id,
        "name": opened.name,
        "why_not_played": why_not,
        "numbers": {number.name: shown_number(number) for number in report.numbers},
    }


def report_page(opened: OpenedRun) -> Page:
    """Return the report of the run, as `maskov report` writes it."""
    return to_page(build([opened.run], title=opened.name))


def samples(run: Run, query: SampleQuery) -> dict[str, Any]:
    """Return the samples that match a query, and how many there are."""
    every = run.samples
    sources = run.manifest.inputs.sources
    matching = [sample for sample in every if _matches(sample, query)]
    matching.sort(key=lambda sample: _key(sample, query.sort), reverse=query.descending)
    shown = matching[query.offset : query.offset + query.limit]
    return {
        "in_all": len(every),
        "found": len(matching),
        "samples": [
            {
                **json_safe(asdict(sample)),
                "source": None if sources is None else sources[sample.template],
            }
            for sample in shown
        ],
    }


def _matches(sample: Sample, query: SampleQuery) -> bool:
    by_norm = query.sort.startswith(("energy_norm", "norm"))
    energy = sample.energy_norm if by_norm else sample.energy_raw
    return (
        query.search.casefold() in sample.text.casefold()
        and query.chain in (None, sample.chain)
        and (query.lowest is None or energy >= query.lowest)
        and (query.highest is None or energy <= query.highest)
    )


def _key(sample: Sample, sort: str) -> float:
    per_token = {"raw_per_token": sample.energy_raw, "norm_per_token": sample.energy_norm}
    if sort in per_token:
        return per_token[sort] / max(len(sample.ids), 1)
    return float(getattr(sample, sort))
