"""Results as Markdown tables: one row per sampler and quantity, one column per x."""

from __future__ import annotations

from typing import Any

from experiments.lib.quantities import QUANTITIES, SAMPLERS
from experiments.lib.result import Document


def markdown(document: Document, extra: str = "") -> str:
    """Return the page of a result: our numbers, with the paper's in brackets."""
    lines = [f"# {document['title']}", "", f"The paper: {document['where']}.", ""]
    lines += [f"![{document['name']}]({document['name']}.svg)", "", _setting(document), ""]
    if document["missing"]:
        lines += [f"Not run yet: {', '.join(document['missing'])}.", ""]
    lines += _table(document["comparison"])
    lines += [
        "",
        "Our number ± one standard error over chains; the paper's number in brackets.",
        "",
    ]
    lines += [f"- {note}" for note in document["notes"]]
    if extra:
        lines += ["", extra.strip()]
    lines += ["", f"All numbers, settings, seeds and signatures: [{document['name']}.json]"
              f"({document['name']}.json)."]  # fmt: skip
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _setting(document: Document) -> str:
    cells = document["cells"].values()
    models = sorted({model["name"] for cell in cells for model in cell.get("models", {}).values()})
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
    """Describe the size of a cell of chains."""
    config = cell.get("asked", {})
    if "epochs" not in config or "burn_in" not in config:
        return ""
    sentences = f"{cell['sentences']} sentences × " if "sentences" in cell else ""
    length = config.get("length")
    tokens = f" of {length[0]}–{length[1]} tokens" if length else ""
    return (
        f"{sentences}{config['chains']} chains{tokens}, {config['epochs']} epochs "
        f"({config['burn_in']} burn-in)"
    )


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(row["x"] for row in rows))
    sides = list(dict.fromkeys((row["quantity"], row["series"]) for row in rows))
    entries = {(row["quantity"], row["series"], row["x"]): row for row in rows}
    lines = ["| | " + " | ".join(str(column) for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for quantity, series in sides:
        name, digits = QUANTITIES[quantity]
        label = f"{SAMPLERS.get(series, series)}: {name}"
        shown = [_entry(entries.get((quantity, series, column)), digits) for column in columns]
        lines.append(f"| {label} | " + " | ".join(shown) + " |")
    return lines


def _entry(row: dict[str, Any] | None, digits: int) -> str:
    if row is None:
        return ""
    ours = "not run" if row["ours"] is None else number(row["ours"], row["standard_error"], digits)
    return ours if row["paper"] is None else f"{ours} ({row['paper']:g})"


def number(value: float, error: float | None, digits: int) -> str:
    """Format a number with its standard error, if any."""
    return f"{value:.{digits}f}" + ("" if not error else f" ± {error:.{digits}f}")
