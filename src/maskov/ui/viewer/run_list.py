"""The run folders that the viewer shows, under ids that only the server maps to paths."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskov.errors import InputError, RunError
from maskov.runs import Run

_ID_DIGITS = 12
# Only the newest are listed.
_MOST_RUNS = 1000


@dataclass(frozen=True)
class OpenedRun:
    """A run; `stamp` changes whenever it progresses."""

    id: str
    name: str
    run: Run
    stamp: int

    @property
    def title(self) -> str:
        """What its user called the run, or else its folder."""
        return self.run.manifest.name or self.name


class RunList:
    """Run folders, and folders of run folders, scanned on every request.

    New runs are created in `home`, which need not exist yet.
    """

    def __init__(self, places: Sequence[Path], home: Path) -> None:
        self.home = home.resolve()
        self._places = [place.resolve() for place in places]
        for given, place in zip(places, self._places, strict=True):
            if not place.is_dir():
                raise InputError(f"'{given}' is not a folder; give run folders or folders of runs.")
            if not _is_run(place) and not any(map(_is_run, _children(place))):
                raise InputError(
                    f"'{given}' has no runs: give a folder written by `maskov sample --out`, or a "
                    "folder of such folders."
                )

    def paths(self) -> dict[str, Path]:
        """Return the folders by their ids, the newest first."""
        runs: set[Path] = set()
        for place in (*self._places, self.home):
            runs.update([place] if _is_run(place) else filter(_is_run, _children(place)))
        newest = sorted(runs, key=lambda path: (-_changed(path), str(path)))
        return {id_of(path): path for path in newest[:_MOST_RUNS]}

    def open(self, run_id: str) -> OpenedRun | None:
        """Open a run by its id, or return None."""
        path = self.paths().get(run_id)
        if path is None:
            return None
        return OpenedRun(run_id, path.name, open_run(path), stamp_of(path))


def open_run(path: Path) -> Run:
    """Open a run folder, unless one of its files could keep its reader waiting for ever."""
    for folder in (path, path / "traces", path / "checkpoints"):
        name = _odd_file(folder)
        if name is not None:
            raise RunError(f"'{name}' of this run is neither a file nor a folder; remove it.")
    return Run.open(path)


def _odd_file(folder: Path) -> str | None:
    """Return the name of a pipe, device or socket in a folder, or None."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_file() and not entry.is_dir() and os.path.exists(entry.path):
                    return entry.name
    except OSError:
        pass  # opening the run says why
    return None


def id_of(path: Path) -> str:
    """Return the id of a folder: a hash of its path."""
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
