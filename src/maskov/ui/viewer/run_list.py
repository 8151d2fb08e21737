"""The run folders that may be looked at, by ids that only the server can turn into paths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskov.errors import InputError
from maskov.runs import Run

_ID_DIGITS = 12
# More than this nobody picks from a list.
_MOST_RUNS = 1000


@dataclass(frozen=True)
class Opened:
    """A run as it stands; `stamp` changes when it goes on."""

    id: str
    name: str
    run: Run
    stamp: int


class Shelf:
    """Run folders, and folders that hold some, looked through anew whenever they are asked for.

    New runs are made in `home`, which need not be there yet.
    """

    def __init__(self, places: Sequence[Path], home: Path) -> None:
        self.home = home.resolve()
        self._places = [place.resolve() for place in places]
        for given, place in zip(places, self._places, strict=True):
            if not place.is_dir():
                raise InputError(f"'{given}' is no folder: give run folders, or folders of them.")
            if not _is_run(place) and not any(map(_is_run, _children(place))):
                raise InputError(
                    f"'{given}' holds no run: give a folder that `maskov sample --out` made, or "
                    "one of such folders."
                )

    def paths(self) -> dict[str, Path]:
        """Return the folders by their ids, the newest first."""
        found: set[Path] = set()
        for place in (*self._places, self.home):
            found.update([place] if _is_run(place) else filter(_is_run, _children(place)))
        newest = sorted(found, key=lambda path: (-_changed(path), str(path)))
        return {id_of(path): path for path in newest[:_MOST_RUNS]}

    def open(self, run_id: str) -> Opened | None:
        """Open a run by its id; nothing where there is none."""
        path = self.paths().get(run_id)
        if path is None:
            return None
        return Opened(run_id, path.name, Run.open(path), stamp_of(path))


def id_of(path: Path) -> str:
    """Return the id of a folder: the same whenever it is served, and no way back to the path."""
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:_ID_DIGITS]


def _is_run(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def _children(path: Path) -> Iterator[Path]:
    try:
        yield from (child for child in path.iterdir() if child.is_dir())
    except OSError:
        return


def _changed(path: Path) -> float:
    try:
        return (path / "manifest.json").stat().st_mtime
    except OSError:
        return 0.0


def stamp_of(path: Path) -> int:
    """Return when the latest epoch was written."""
    try:
        return (path / "traces" / "steps.npy").stat().st_mtime_ns
    except OSError:
        return 0
