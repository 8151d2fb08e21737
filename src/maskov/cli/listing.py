"""The command that lists what can be named without a download: `models`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from maskov.cli.output import print_json
from maskov.models.registry import listed


def models(
    json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output")] = False,
) -> None:
    """List the models that come with maskov."""
    found = listed()
    if json:
        print_json(model.to_json() for model in found)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("model", "kind", "parameters", "size", "what it is"):
        table.add_column(column, justify="right" if column in ("parameters", "size") else "left")
    for model in found:
        table.add_row(
            f"{model.name} (default)" if model.default else model.name,
            model.kind,
            f"{model.parameters:,}",
            f"{model.bytes / 1e6:.1f} MB" if model.bytes else "",
            model.summary,
        )
    Console().print(table, markup=False, highlight=False)
