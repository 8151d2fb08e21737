"""The command `models`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from maskov.cli.output import print_json
from maskov.ui.escaping import PrintableConsole

# What a model is the default of, by its kind.
_DEFAULTS = {"masked": " (default)", "causal": " (default judge of evaluate)"}


def models(
    json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output")] = False,
) -> None:
    """List the models that need no download."""
    from maskov.shipped import listed

    if json:
        print_json(model.to_json() for model in listed())
        return
    # One block per model: the description does not fit into a line of a terminal.
    for model in listed():
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim", min_width=10)
        table.add_column(overflow="fold")
        default = _DEFAULTS[model.kind] if model.default else ""
        table.add_row("model", model.name + default)
        table.add_row("description", f"{model.kind}: {model.summary}")
        if model.pairs:
            table.add_row("translates", ", ".join(model.pairs))
        size = f", {model.bytes / 2**20:.1f} MiB" if model.bytes else ""
        table.add_row("size", f"{model.parameters:,} parameters{size}")
        table.add_row("trained on", model.training_data)
        table.add_row("licence", model.licence)
        if model.quality:
            measured = (f"{name} {value:g}" for name, value in model.quality.items())
            table.add_row("quality", "; ".join(measured))
        PrintableConsole().print(table, "", markup=False, highlight=False)
