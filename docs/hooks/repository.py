"""Pages of the repository outside docs/: results, changelog and so on, as part of the site.

A page links to files of the repository as they lie there, so that the same links work where the
repository is browsed. The site has a file of docs/ at its path below docs/, and any other file at
its path in the repository; links are rewritten accordingly. What pages link to becomes part of
the site.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r'(?P<before>\]\(|(?:src|href)=")(?P<path>[^)\s"#:]+)(?P<after>[#)"])')
_FENCE = re.compile(r"^ *```")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of `nav` that are not in docs/, and what any page links to."""
    waiting = [
        source for source in _named(config.nav) if not (ROOT / "docs" / source).exists()
    ]  # fmt: skip
    for file in files.documentation_pages():
        waiting += _outside(file)
    while waiting:
        source = waiting.pop()
        path = ROOT / source
        if files.get_file_from_path(source) is not None or not path.is_file():
            continue  # the build says what is missing
        file = File.generated(config, source, abs_src_path=str(path))
        files.append(file)
        if source.endswith(".md"):
            waiting += _outside(file)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between files of the site."""
    here = _in_repository(page.file)
    lines, fenced = [], False
    for line in markdown.splitlines():
        fenced ^= bool(_FENCE.match(line))
        if not fenced:
            line = _LINK.sub(lambda match: _rewritten(match, here), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _rewritten(match: re.Match[str], here: str) -> str:
    """Return a link of the page `here`, as it is on the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match["path"]))
    start = posixpath.dirname(_on_site(here)) or "."
    path = posixpath.relpath(_on_site(target), start)
    return f"{match['before']}{path}{match['after']}"


def _on_site(path: str) -> str:
    """Return the place of a file on the site; one of docs/ must exist, or the link is broken."""
    return path.removeprefix("docs/") if (ROOT / path).exists() else path


def _in_repository(file: File) -> str:
    """Return the path of a page in the repository; a generated page is as if it were in docs/."""
    if file.generated_by is None or file.abs_src_path is None:
        return f"docs/{file.src_uri}"
    return Path(os.path.relpath(file.abs_src_path, ROOT)).as_posix()


def _outside(file: File) -> Iterator[str]:
    """Yield the files outside docs/ that a page links to, by their paths in the repository."""
    here, fenced = _in_repository(file), False
    for line in file.content_string.splitlines():
        fenced ^= bool(_FENCE.match(line))
        for match in () if fenced else _LINK.finditer(line):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match["path"]))
            if not target.startswith(("docs/", "../")):
                yield target


def _named(nav: Any) -> Iterator[str]:
    """Yield every page of the navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for entry in nav:
            yield from _named(entry)
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from _named(entry)
