"""Write files so that a crash at any moment leaves the old or the new content, never half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskov.errors import RunError


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, force it to disk, and rename it into place."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Force a file's content to disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's list of names to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the system's complaint about a path into one sentence."""
    try:
        yield
    except (OSError, ValueError) as error:  # a path may hold what no path can
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise RunError(
            f"cannot write the run folder '{path}': {reason}. Free some space or give another "
            "--out; a run that was saved goes on with `maskov resume`."
        ) from error
