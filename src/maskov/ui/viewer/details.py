"""What pages show of runs beside their steps: the list, the overview, the samples."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskov.errors import MaskovError
from maskov.runs import Run, Sample
from maskov.ui.report import build
from maskov.ui.report.html import Page, shown_number, to_page
from maskov.ui.report.json_data import PAGE_DIGITS, plain
from maskov.ui.viewer.run_list import Opened, Shelf, stamp_of

SORTS = ("energy_raw", "energy_norm", "raw_per_token", "norm_per_token", "chain", "epoch")


@dataclass(frozen=True)
class Wanted:
    """Which samples to show, in which order, and how many from which one on."""

    search: str = ""
    chain: int | None = None
    lowest: float | None = None
    highest: float | None = None
    sort: str = "energy_raw"
    descending: bool = False
    offset: int = 0
    limit: int = 50


class Listing:
    """A line for each run, made again only when the run has gone on."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines; a run that cannot be read says why."""
        paths = self._shelf.paths()
        for run_id, path in paths.items():
            stamp = stamp_of(path)
            if self._known.get(run_id, (None,))[0] != stamp:
                self._known[run_id] = stamp, _line(run_id, path)
        return [self._known[run_id][1] for run_id in paths]


def _line(run_id: str, path: Path) -> dict[str, Any]:
    line: dict[str, Any] = {"id": run_id, "name": path.name, "folder": path.parent.name}
    try:
        return {**line, **_figures(Run.open(path))}
    except MaskovError as error:
        return {**line, "error": str(error)}


def _figures(run: Run) -> dict[str, Any]:
    summary = run.summary()
    wanted = (
        "model", "kernel", "energy", "chains", "epochs", "epochs_done", "acceptance_rate",
        "novel_rate", "energy_raw_mean", "energy_norm_mean", "leaves_invariant",
    )  # fmt: skip
    figures = summary.to_dict()
    found = {name: figures[name] for name in wanted}
    return plain({**found, "created": run.manifest.created}, PAGE_DIGITS)  # type: ignore[no-any-return]


def overview(opened: Opened, why_not: str | None) -> dict[str, Any]:
    """Return what a report says of the run, and whether its chains can be played."""
    found = build([opened.run], samples=0).runs[0]
    return {
        **plain(found, PAGE_DIGITS),
        "id": opened.id,
        "name": opened.name,
        "why_not_played": why_not,
        "numbers": {number.name: shown_number(number) for number in found.numbers},
    }


def report_page(opened: Opened) -> Page:
    """Return the report of the run, as `maskov report` makes it."""
    return to_page(build([opened.run], title=opened.name))


def samples(run: Run, wanted: Wanted) -> dict[str, Any]:
    """Return the samples that were asked for, and how many there are."""
    every = run.samples
    sources = run.manifest.inputs.sources
    found = [one for one in every if _fits(one, wanted)]
    found.sort(key=lambda one: _key(one, wanted.sort), reverse=wanted.descending)
    shown = found[wanted.offset : wanted.offset + wanted.limit]
    return {
        "in_all": len(every),
        "found": len(found),
        "samples": [
            {**plain(asdict(one)), "source": None if sources is None else sources[one.template]}
            for one in shown
        ],
    }


def _fits(one: Sample, wanted: Wanted) -> bool:
    energy = one.energy_norm if wanted.sort.startswith(("energy_norm", "norm")) else one.energy_raw
    return (
        wanted.search.casefold() in one.text.casefold()
        and wanted.chain in (None, one.chain)
        and (wanted.lowest is None or energy >= wanted.lowest)
        and (wanted.highest is None or energy <= wanted.highest)
    )


def _key(one: Sample, sort: str) -> float:
    per_token = {"raw_per_token": one.energy_raw, "norm_per_token": one.energy_norm}
    if sort in per_token:
        return per_token[sort] / max(len(one.ids), 1)
    return float(getattr(one, sort))
