"""The run list and the overview of a run, as JSON data for pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskov.errors import MaskovError
from maskov.runs import Run
from maskov.ui.report import build
from maskov.ui.report.formats import PAGE_DIGITS, Page, json_safe, to_page, with_error
from maskov.ui.viewer.run_list import OpenedRun, RunList, open_run, stamp_of


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
    names: dict[str, Any] = {
        "id": run_id, "name": path.name, "title": path.name, "folder": path.parent.name
    }  # fmt: skip
    try:
        run = open_run(path)
        return {**names, "title": run.manifest.name or path.name, **_figures(run)}
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


class Verdicts:
    """The verdict of each run, for its card; diagnosed again when the run has progressed."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[int, dict[str, Any]]] = {}

    def of(self, opened: OpenedRun) -> dict[str, Any]:
        """Return the state, its tone and the headline."""
        known = self._cache.get(opened.id)
        if known is not None and known[0] == opened.stamp:
            return known[1]
        verdict = opened.run.diagnose().verdict.to_dict()
        self._cache[opened.id] = opened.stamp, verdict
        return verdict


def overview(opened: OpenedRun, why_not: str | None) -> dict[str, Any]:
    """Return the run's report without samples, and why its chains cannot be replayed, if so."""
    report = build([opened.run], samples=0).runs[0]
    data = json_safe(report, PAGE_DIGITS)
    del data["diagnosis"]
    return {
        **data,
        "id": opened.id,
        "name": opened.name,
        "title": opened.title,
        "why_not_played": why_not,
        "numbers": {number.name: with_error(number) for number in report.numbers},
    }


def report_page(opened: OpenedRun) -> Page:
    """Return the report of the run, as `maskov report` writes it."""
    return to_page(build([opened.run], title=opened.title))
