"""Write files so that a crash at any moment leaves the old or the new content, never half.

Only regular files are opened: a run folder may be anybody's, and a pipe in place of a file would
keep its reader waiting for ever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from maskov.errors import RunError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: Path) -> None:
    """Refuse a pipe, a socket or a device; what is missing or a folder is told by who opens it."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return
    if kind in _KINDS:
        raise RunError(f"'{path}' is no regular file but {_KINDS[kind]}; put a file there.")


def open_regular(path: Path, mode: str = "rb", **options: Any) -> IO[Any]:
    """Open a regular file, as `open` does; refuse anything else without waiting for it."""
    check_regular(path)

    def opener(name: str, flags: int) -> int:
        # It may have been replaced since: then at least nothing waits.
        handle = os.open(name, flags | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise RunError(f"'{path}' is no regular file; put one there.")
        return handle

    return open(path, mode, opener=opener, **options)


def read_text(path: Path) -> str:
    """Return the text of a regular file."""
    with open_regular(path, "r", encoding="utf-8") as file:
        return str(file.read())


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, force it to disk, and rename it into place."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open_regular(temporary, "wb") as file:
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
