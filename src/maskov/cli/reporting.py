"""The command `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from maskov.cli.escaping import json_printable, printable
from maskov.cli.output import reason_of, say
from maskov.errors import InputError

# The suffixes of files, and the formats that they mean.
_FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}


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
    from maskov.runs.files import write_atomically
    from maskov.ui.report import build, to_html, to_json, to_markdown

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
    write = {"html": to_html, "md": to_markdown, "json": to_json}[kind]
    content = write(data).encode("utf-8", "replace")
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
    """Return the given format, or the one of the file's name; no other is written into it."""
    kinds = list(dict.fromkeys(_FORMATS.values()))
    if given is not None and given not in kinds:
        raise InputError(f"unknown format '{given}'; use one of {', '.join(kinds)}.")
    suffix = "" if out is None else out.suffix.lower()
    named = _FORMATS.get(suffix)
    if given is None and suffix and named is None:
        raise InputError(
            f"'{out}' would be a {suffix[1:].upper()} file; reports are HTML, Markdown or JSON: "
            "use a name with .html (which a browser prints to PDF), .md or .json, or give --format."
        )
    return given or named or "html"
