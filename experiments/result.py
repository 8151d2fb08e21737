"""A result of the paper: its cells, what is compared with what, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments import paper
from experiments.settings import Setting
from experiments.work import Found, Work
from experiments.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A result as it is written: see `document`.
Document = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One number of ours, the cell it comes from, and the paper's beside it."""

    quantity: str
    series: str
    x: float | str
    cell: str
    paper: float | None = None


@dataclass(frozen=True)
class Result:
    """One table, figure or statement of the paper.

    `cells` and `entries` are declared for a setting, before anything is run; `also` adds what does
    not come from a run of ours, such as people's ratings. `more` is Markdown after the table.
    """

    name: str
    title: str
    cells: Callable[[Setting], dict[str, Work]]
    entries: Callable[[Setting], list[Entry]]
    draw: Callable[[Document], Figure]
    notes: tuple[str, ...] = ()
    also: Callable[[Workshop], dict[str, Found]] = field(default=lambda workshop: {})
    more: Callable[[Document], str] = field(default=lambda document: "")

    @property
    def where(self) -> str:
        """Where the paper has it."""
        return paper.WHERE[self.name]


def document(
    result: Result, setting: Setting, cells: dict[str, Found], missing: Sequence[str]
) -> Document:
    """Put a result together from the cells that there are; `missing` names the others."""
    rows = []
    for entry in result.entries(setting):
        ours = cells.get(entry.cell, {}).get("values", {}).get(entry.quantity)
        rows.append(
            {
                "quantity": entry.quantity,
                "series": entry.series,
                "x": entry.x,
                "cell": entry.cell,
                "ours": None if ours is None else ours["value"],
                "standard_error": None if ours is None else ours["standard_error"],
                "n": None if ours is None else ours["n"],
                "paper": entry.paper,
            }
        )
    return {
        "name": result.name,
        "title": result.title,
        "where": result.where,
        "setting": setting.name,
        "complete": not missing,
        "missing": list(missing),
        "seconds": round(sum(cell.get("seconds", 0.0) for cell in cells.values()), 2),
        "devices": sorted({cell["device"] for cell in cells.values() if "device" in cell}),
        "seeds": sorted({cell["seed"] for cell in cells.values() if cell.get("seed") is not None}),
        "notes": list(result.notes),
        "comparison": rows,
        "cells": cells,
    }


def found(document: Document, quantity: str, series: str, x: float | str) -> dict[str, Any] | None:
    """Return the row of a comparison, if it has a number of ours."""
    for row in document["comparison"]:
        if (row["quantity"], row["series"], row["x"]) == (quantity, series, x):
            return row if row["ours"] is not None else None
    return None
