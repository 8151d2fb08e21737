"""The command `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from maskov.cli.output import say
from maskov.errors import InputError
from maskov.ui.escaping import json_printable, printable


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")],
    out: Annotated[
        Path | None, typer.Option(help="file to write (default for md and json: standard output)")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="html, md or json (default: suffix of --out)"),
    ] = None,
    terms: Annotated[
        bool, typer.Option("--terms", help="shade tokens by their terms; loads the run's model")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=0, help="samples per run (default: 1000, or 200 with --terms)")
    ] = None,
    title: Annotated[str | None, typer.Option(help="heading (default: names of the runs)")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with a run's model")
    ] = False,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="download a run's model for --terms")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="device for --terms (default: that of the run)")
    ] = None,
) -> None:
    """Write a self-contained page about runs: verdicts, charts, samples, comparison."""
    from maskov.runs import Run
    from maskov.ui.report import build
    from maskov.ui.report.formats import content_of, format_of, write_file

    kind = format_of(format_, out)
    if kind == "html" and out is None:
        raise InputError("HTML needs a file: give --out report.html, or --format md or json.")
    data = build(
        [Run.open(path) for path in runs],
        title=title,
        samples=samples,
        terms=terms,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_download=allow_download,
    )
    content = content_of(data, kind)
    if out is None:
        escape = json_printable if kind == "json" else printable
        sys.stdout.write(escape(content.decode()))
        return
    write_file(out, content)
    say(f"{out}: {len(runs)} run{'s' * (len(runs) > 1)}, {len(content) / 1e6:.1f} MB")
