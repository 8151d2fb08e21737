"""The command `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from maskov.cli.escaping import json_printable, printable
from maskov.cli.output import reason_of, say
from maskov.errors import InputError
from maskov.runs import Run
from maskov.runs.files import write_atomically
from maskov.ui.report import build, to_html, to_json, to_markdown

_FORMATS = {"html": to_html, "md": to_markdown, "json": to_json}


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
    kind = _format(format_, out)
    if kind == "html" and out is None:
        raise InputError("HTML needs a file: give --out report.html, or --format md or json.")
    if out is not None and out.is_dir():
        raise InputError(f"'{out}' is a folder; give --out a file.")
    data = build(
        [Run.open(path) for path in runs],
        title=title,
        samples=samples,
        terms=terms,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_download=allow_download,
    )
    # A broken decoder can produce lone surrogates, which cannot be encoded.
    content = _FORMATS[kind](data).encode("utf-8", "replace")
    if out is None:
        escape = json_printable if kind == "json" else printable
        sys.stdout.write(escape(content.decode()))
        return
    try:
        write_atomically(out, content)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {reason_of(error)}.") from error
    say(f"{out}: {len(runs)} run{'s' * (len(runs) > 1)}, {len(content) / 1e6:.1f} MB")


def _format(given: str | None, out: Path | None) -> str:
    """Return the given format, or the one of the file's name."""
    if given is None:
        given = {".md": "md", ".json": "json"}.get(out.suffix.lower() if out else "", "html")
    if given not in _FORMATS:
        raise InputError(f"unknown format '{given}'; use one of {', '.join(_FORMATS)}.")
    return given
