"""Results as Markdown: rows are samplers and quantities, columns what was varied."""

from __future__ import annotations

from typing import Any

from experiments.quantities import QUANTITIES, SAMPLERS
from experiments.result import Document


def markdown(document: Document, more: str = "") -> str:
    """Return a result as a page: ours in front, the paper's in brackets."""
    lines = [f"# {document['title']}", "", f"The paper: {document['where']}.", ""]
    lines += [f"![{document['name']}]({document['name']}.svg)", "", _setting(document), ""]
    if document["missing"]:
        lines += [f"Not run yet: {', '.join(document['missing'])}.", ""]
    lines += _table(document["comparison"])
    lines += ["", "Ours ± one standard error over chains; in brackets the paper's number.", ""]
    lines += [f"- {note}" for note in document["notes"]]
    if more:
        lines += ["", more.strip()]
    lines += ["", f"All numbers, seeds and signatures: [{document['name']}.json]"
              f"({document['name']}.json)."]  # fmt: skip
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _setting(document: Document) -> str:
    cells = document["cells"].values()
    models = sorted({one["name"] for cell in cells for one in cell.get("models", {}).values()})
    size = sorted({_size(cell) for cell in cells} - {""})
    parts = [f"Setting `{document['setting']}`"]
    if models:
        parts.append("models " + ", ".join(models))
    if size:
        parts.append("; ".join(size))
    if document["devices"]:
        parts.append(f"{', '.join(document['devices'])}, {document['seconds']:.0f} s in all")
    return " · ".join(parts) + "."


def _size(cell: dict[str, Any]) -> str:
    """Say how large a cell of chains was."""
    asked = cell.get("asked", {})
    if "epochs" not in asked or "burn_in" not in asked:
        return ""
    what = f"{cell['sentences']} sentences × " if "sentences" in cell else ""
    length = asked.get("length")
    beside = f" of {length[0]}–{length[1]} tokens" if length else ""
    return (
        f"{what}{asked['chains']} chains{beside}, {asked['epochs']} epochs "
        f"({asked['burn_in']} burn-in)"
    )


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(row["x"] for row in rows))
    sides = list(dict.fromkeys((row["quantity"], row["series"]) for row in rows))
    entries = {(row["quantity"], row["series"], row["x"]): row for row in rows}
    lines = ["| | " + " | ".join(str(column) for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for quantity, series in sides:
        name, digits = QUANTITIES[quantity]
        told = f"{SAMPLERS.get(series, series)}: {name}"
        shown = [_entry(entries.get((quantity, series, column)), digits) for column in columns]
        lines.append(f"| {told} | " + " | ".join(shown) + " |")
    return lines


def _entry(row: dict[str, Any] | None, digits: int) -> str:
    if row is None:
        return ""
    ours = "not run" if row["ours"] is None else number(row["ours"], row["standard_error"], digits)
    return ours if row["paper"] is None else f"{ours} ({row['paper']:g})"


def number(value: float, error: float | None, digits: int) -> str:
    """Write a number with its error, if it has one."""
    return f"{value:.{digits}f}" + ("" if not error else f" ± {error:.{digits}f}")
