"""What `infill` prints: the fills of each template, most probable first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from maskov.cli.output import print_table, say

if TYPE_CHECKING:
    from maskov.filling import Filling
    from maskov.runs.result import Fill

# Rows of the table for each template, unless --top-k says otherwise.
SHOWN = 20


def print_fills(
    fills: Sequence[Sequence[Fill]], names: Sequence[str] | None = None, top_k: int | None = None
) -> None:
    """Print the fills of each template as a table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    several = len(fills) > 1
    for name in [*(["template"] if several else []), "probability", "error", "energy", "count"]:
        table.add_column(name, justify="right", style="dim" if name == "template" else "cyan")
    table.add_column("text", overflow="fold")
    for number, rows in enumerate(fills):
        label = str(number + 1) if names is None else names[number]
        for fill in rows[: top_k or SHOWN]:
            numbers = (_share(fill.probability), _share(fill.error), _shown(fill.energy))
            shown = (*numbers, str(fill.count), fill.text)
            table.add_row(*([label] if several else []), *shown)
    print_table(table)


def say_filling(found: Filling, quiet: bool) -> None:
    """Say what is not listed, the lengths and the verdict; problems are said in any case."""
    for one in () if quiet else found.templates:
        lengths = ", ".join(f"{n}: {p:.3f} ± {e:.3f}" for n, (p, e) in one.lengths.items())
        if lengths:
            say(f"tokens in the blanks: {lengths}")
        say(
            f"{one.template}: {len(one.fills):,} fills found; all others have probability "
            f"{one.unlisted:.3f} together; {one.passes:,} passes"
        )
    for problem in found.problems:
        say(f"not good enough: {problem}")
    if not quiet and not found.problems:
        error = max(one.error for one in found.templates)
        say(f"good: the sum over all fills is known to ± {error:.1%}")
    if not quiet:
        say(f"p ∝ exp(−E/{found.temperature:g}), E = {found.energy}")


def _share(value: float) -> str:
    return f"{value:.2e}" if 0 < value < 0.001 else "–" if math.isnan(value) else f"{value:.4f}"


def _shown(energy: float) -> str:
    return "–" if math.isnan(energy) else f"{energy:.2f}"
