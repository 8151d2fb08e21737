"""Static files, read once at startup, so that no request path reaches the file system."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import PurePath

from fastapi.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticFiles:
    """Some files of a package's `static` folder, by name."""

    def __init__(self, package: str, names: Iterable[str]) -> None:
        static = files(package) / "static"
        self._contents = {name: (static / name).read_bytes() for name in names}

    def names(self) -> list[str]:
        """Return the names of all files."""
        return list(self._contents)

    def response(self, name: str) -> Response:
        """Return a file as a response."""
        return Response(self._contents[name], media_type=_TYPES[PurePath(name).suffix])
