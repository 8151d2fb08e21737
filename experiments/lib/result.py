"""A result of the paper: its cells, the comparison with the paper's numbers, and its figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.lib.cell import Cell, CellResult
from experiments.lib.context import Context
from experiments.lib.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A result as it is stored: see `build_document`.
Document = dict[str, Any]
# What a document keeps of each cell. OUT/cells has the rest: texts, counts of sentences, curves.
_KEPT = (
    "kind", "key", "asked", "setting", "models", "precision", "device", "created", "seconds",
    "versions", "signature", "seed", "values", "sentences", "left_out", "bleu_signature",
    "replicates", "raters", "ratings",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One of our numbers, the cell it comes from, and the paper's number."""

    quantity: str
    series: str
    x: float | str
    cell: str
    paper: float | None = None


@dataclass(frozen=True)
class Result:
    """One table, figure or statement of the paper; `section` is its place there.

    `cells` and `entries` are declared per setting, before anything is run. `extra_cells` adds
    numbers that no run computes, such as human ratings. `extra_markdown` goes below the table.
    `keep` names further parts of a cell that the figure, the page or a claim reads.
    """

    name: str
    title: str
    section: str
    cells: Callable[[Setting], dict[str, Cell]]
    entries: Callable[[Setting], list[Entry]]
    draw: Callable[[Document], Figure]
    notes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    extra_cells: Callable[[Context], dict[str, CellResult]] = field(default=lambda context: {})
    extra_markdown: Callable[[Document], str] = field(default=lambda document: "")


def build_document(
    result: Result, setting: Setting, cells: dict[str, CellResult], missing: Sequence[str]
) -> Document:
    """Assemble a result from the computed cells; `missing` names the others."""
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
        "where": result.section,
        "setting": setting.name,
        "complete": not missing,
        "missing": list(missing),
        "seconds": round(sum(cell.get("seconds", 0.0) for cell in cells.values()), 2),
        "devices": sorted({cell["device"] for cell in cells.values() if "device" in cell}),
        "seeds": sorted({cell["seed"] for cell in cells.values() if cell.get("seed") is not None}),
        "notes": list(result.notes),
        "comparison": rows,
        "cells": {
            label: {part: cell[part] for part in (*_KEPT, *result.keep) if part in cell}
            for label, cell in cells.items()
        },
    }


def document_json(document: Document) -> str:
    """Return a document as JSON, with one line for each row and each cell."""
    parts = []
    for name, value in document.items():
        if name == "comparison":
            rows = ",\n".join(f"  {_json(row)}" for row in value)
            parts.append(f'"{name}": [\n{rows}\n ]')
        elif name == "cells":
            cells = ",\n".join(f"  {_json(label)}: {_json(cell)}" for label, cell in value.items())
            parts.append(f'"{name}": {{\n{cells}\n }}')
        else:
            parts.append(f"{_json(name)}: {_json(value)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def find_row(
    document: Document, quantity: str, series: str, x: float | str
) -> dict[str, Any] | None:
    """Return the row of a comparison, or None if we have no number for it."""
    for row in document["comparison"]:
        if (row["quantity"], row["series"], row["x"]) == (quantity, series, x):
            return row if row["ours"] is not None else None
    return None
