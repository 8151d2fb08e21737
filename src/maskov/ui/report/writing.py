"""Write the report of runs to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskov.errors import InputError
from maskov.runs.files import write_atomically
from maskov.runs.result import Run
from maskov.ui.report.data import Report, build
from maskov.ui.report.html import to_html
from maskov.ui.report.json_data import to_json
from maskov.ui.report.markdown import to_markdown

_FORMATS = {"html": to_html, "md": to_markdown, "json": to_json}
# The suffixes of files, and the formats that they mean.
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}


def format_of(given: str | None, out: Path | None) -> str:
    """Return the given format, or the one of the file's name; no other is written into it."""
    if given is not None and given not in _FORMATS:
        raise InputError(f"unknown format '{given}'; use one of {', '.join(_FORMATS)}.")
    suffix = "" if out is None else out.suffix.lower()
    named = _SUFFIXES.get(suffix)
    if given is None and suffix and named is None:
        raise InputError(
            f"'{out}' would be a {suffix[1:].upper()} file; reports are HTML, Markdown or JSON: "
            "use a name with .html (which a browser prints to PDF), .md or .json, or give --format."
        )
    return given or named or "html"


def check_file(out: Path) -> None:
    """Refuse a folder."""
    if out.is_dir():
        raise InputError(f"'{out}' is a folder; give --out a file.")


def content_of(data: Report, kind: str) -> bytes:
    """Return the file of a report."""
    # A broken decoder can produce lone surrogates, which cannot be encoded.
    return _FORMATS[kind](data).encode("utf-8", "replace")


def write_file(out: Path, content: bytes) -> None:
    """Write the file as a whole, or say why it cannot be."""
    try:
        write_atomically(out, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write '{out}': {reason}.") from error


def write_report(runs: Sequence[Run], out: Path, **options: Any) -> Path:
    """Write a report in the format that the name of its file says.

    `options` are those of `build`.
    """
    check_file(out)
    kind = format_of(None, out)
    write_file(out, content_of(build(runs, **options), kind))
    return out
