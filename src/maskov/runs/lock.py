"""One process at a time in a run folder; the system frees the lock when that process dies."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskov.errors import RunError
from maskov.runs.files import explained, open_to_write


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder and hold its lock; if it was made here and nothing came of it, remove it."""
    existed = folder.exists()
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            yield
        finally:
            if not existed and {file.name for file in folder.iterdir()} <= {"lock"}:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or refuse if somebody else does."""
    with held(folder / "lock") as ours:
        if not ours:
            raise RunError(
                f"the run folder '{folder}' is in use by another process; wait for it to end."
            )
        yield


@contextmanager
def held(file: Path) -> Iterator[bool]:
    """Hold the lock of a file, if nobody else does; say whether it is ours."""
    with explained(file.parent):
        opened = open_to_write(file, flags=os.O_CREAT)
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
