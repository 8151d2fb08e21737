"""The commands `models` and `models fetch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from maskov.cli.help import Command, CommandGroup
from maskov.cli.output import print_json, say
from maskov.cli.signals import interruptible
from maskov.errors import InputError
from maskov.fetching import cache_folder, fetch
from maskov.ui.escaping import PrintableConsole

if TYPE_CHECKING:
    from typer import Context
else:
    Context = typer.Context.__base__  # which is what Typer passes

# What a model is the default of, by its kind.
_DEFAULTS = {"masked": " (default)", "causal": " (default judge of evaluate)"}

models = typer.Typer(cls=CommandGroup, invoke_without_command=True, no_args_is_help=False)


@models.callback()
def list_models(
    context: Context,
    json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output")] = False,
) -> None:
    """List the models that need no download, or fetch others."""
    if context.invoked_subcommand is not None:
        if json:
            raise InputError("--json lists models; fetch has no such option.")
        return
    from maskov.models.registry import listed

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


@models.command("fetch", cls=Command)
@interruptible
def fetch_models(
    names: Annotated[list[str], typer.Argument(help="models to fetch")],
    source: Annotated[
        str | None,
        typer.Option("--from", help="address or file of the archive (default: where it is kept)"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
) -> None:
    """Fetch models that are too large for the package, such as those for translation.

    They are checked by their recorded hash and kept in MASKOV_CACHE (or ~/.cache/maskov); commands
    then find them by name.
    """
    if source is not None and len(names) != 1:
        raise InputError("--from is the archive of one model: name one.")
    for name in names:
        there = (cache_folder() / name).is_dir()
        shown: set[int] = set()

        def progress(done: int, total: int, name: str = name, shown: set[int] = shown) -> None:
            tenth = 10 * done // total
            if not quiet and tenth not in shown:
                shown.add(tenth)
                say(f"{name}: {done / 2**20:.1f} of {total / 2**20:.1f} MiB")

        folder = fetch(name, source, progress)
        if there and not quiet:
            say(f"{name} was there already")
        print(folder)
