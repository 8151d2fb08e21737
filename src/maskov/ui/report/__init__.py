"""A report as HTML, Markdown or JSON, and its file.

The HTML page is self-contained. Text is escaped by the templates, data is JSON that cannot end its
element, and the content security policy allows only the page's own scripts and styles, by hash: no
sample can inject code.
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from maskov.diagnostics.verdict import shown
from maskov.errors import refuse
from maskov.ui.escaping import printable
from maskov.ui.report.data import Data, build as build

_SCRIPTS = (
    "scales.js", "drawing.js", "charts.js", "proteins.js", "figures.js", "samples.js", "theme.js",
    "page.js",
)  # fmt: skip
_STYLES = ("report.css", "charts.css", "samples.css", "proteins.css", "print.css")
# Significant digits in a page: enough for zooming, and keeps it small.
PAGE_DIGITS = 7
# The suffixes of files, and the formats that they mean.
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}


def to_html(report: Data) -> str:
    """Return the page."""
    return to_page(report)[0]


def to_page(report: Data) -> tuple[str, str]:
    """Return the page and its content security policy, which a server sends as a header too."""
    # One scope for all scripts, to define no globals.
    script = "(() => {\n" + _read(_SCRIPTS) + "})();\n"
    style = _read(_STYLES)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = json_safe(report, PAGE_DIGITS)
    for run in data["runs"]:
        del run["diagnosis"]  # what the page shows of it has its own fields
    template = templates().get_template("report.html")
    return template.render(report, policy=policy, script=script, style=style, data=data), policy


def to_markdown(report: Data) -> str:
    """Return the tables of a report and the samples of lowest energy."""
    return templates(markdown=True).get_template("report.md").render(report)


def to_json(report: Any) -> str:
    """Return a report as one JSON object."""
    return json.dumps(json_safe(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def json_safe(value: Any, digits: int = 17, infinities: bool = False) -> Any:
    """Return dicts, lists and numbers; floats rounded to `digits`, NaN and infinities as None.

    With `infinities`, these are the strings "inf" and "-inf". They matter where steps are shown:
    one whose reverse is impossible is rejected because its log q is −inf.
    """
    named = {"Infinity": "inf", "-Infinity": "-inf"} if infinities else {}
    return json.loads(
        json.dumps(value, default=asdict),
        parse_float=lambda text: float(f"{float(text):.{digits}g}"),
        parse_constant=named.get,
    )


def with_error(number: Data) -> str:
    """Return value ± standard error, to two digits of the error; without an error, four digits."""
    value, error = number["value"], number["standard_error"]
    if value is None or error is None or not math.isfinite(error) or error <= 0:
        return shown(value, ".4g")
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{shown(value, f'.{places}f')} ± {error:.{places}f}"


def _in_markdown(value: Any) -> Markup:
    """Escape the special characters of Markdown and HTML, except in what a macro made."""
    if isinstance(value, Markup):
        return value
    escaped = re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", " ".join(str(value).split()))
    return Markup(escaped.replace("&", "&amp;"))


@cache
def templates(markdown: bool = False) -> Environment:
    """Return the templates, which escape what they are given."""
    environment = Environment(
        loader=PackageLoader("maskov.ui.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=_in_markdown if markdown else None,
    )
    environment.filters |= {
        "shown": shown, "with_error": with_error, "thousands": "{:,}".format,
        "printable": printable,
    }  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False, "allow_nan": False, "separators": (",", ":")
    }  # fmt: skip
    return environment


def _read(names: Sequence[str]) -> str:
    static = files("maskov.ui.report") / "static"
    return "\n".join((static / name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


_FORMATS = {"html": to_html, "md": to_markdown, "json": to_json}


def format_of(given: str | None, out: Path | None) -> str:
    """Return the given format, or the one of the file's name; refuse names that fit no format."""
    suffix = "" if out is None else out.suffix.lower()
    named = _SUFFIXES.get(suffix)
    refuse(
        (
            given is not None and given not in _FORMATS,
            f"unknown format '{given}'; use one of {', '.join(_FORMATS)}.",
        ),
        (out is not None and out.is_dir(), f"'{out}' is a folder; give --out a file."),
        (
            given is None and suffix and named is None,
            f"'{out}' would be a {suffix[1:].upper()} file; reports are HTML, Markdown or JSON: "
            "use a name with .html (which a browser prints to PDF), .md or .json, or give "
            "--format.",
        ),
    )
    return given or named or "html"


def content_of(data: Data, kind: str) -> bytes:
    """Return the file of a report."""
    # A broken decoder can produce lone surrogates, which cannot be encoded.
    return _FORMATS[kind](data).encode("utf-8", "replace")
