"""Read and write the files of a run folder, which may be anybody's.

Only regular files are opened: a pipe in place of a file would keep its reader waiting for ever.
Reading is bounded, since a file may be larger than memory. Writing follows no links, and a crash at
any moment leaves the old or the new content, never half.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from maskov.errors import InputError, RunError, reason_of, refuse

# The most bytes of a manifest and the like.
MOST_BYTES = 2**28
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _check_kind(path: Path, found: os.stat_result) -> None:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode))
    refuse((kind, f"'{path}' is not a regular file but {kind}; put a file there."), kind=RunError)


def check_own(path: Path, found: os.stat_result) -> None:
    """Refuse what is written elsewhere, too: a link, or a file with another name."""
    _check_kind(path, found)
    refuse(
        (
            stat.S_ISLNK(found.st_mode),
            f"'{path}' is a link that leads out of its run folder; put a file there.",
        ),
        (
            stat.S_ISREG(found.st_mode) and found.st_nlink > 1,
            f"'{path}' has another name elsewhere (a hard link), where writing would be seen; put "
            "a copy of it there.",
        ),
        kind=RunError,
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder in which something is a link, or no file and no folder."""
    for path in folder.rglob("*"):
        check_own(path, path.lstat())


# Reading.


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; refuse anything else without waiting for it."""
    _check_kind(path, path.stat())
    return path.open("rb")


def read_text(path: Path) -> str:
    """Return the text of a file; refuse one that is larger than any run writes."""
    with open_regular(path) as file:
        refuse(
            (
                os.fstat(file.fileno()).st_size > MOST_BYTES,
                f"'{path}' has more than {MOST_BYTES >> 20} MiB, which no run writes; put the "
                "right file there.",
            ),
            kind=RunError,
        )
        return file.read(MOST_BYTES).decode("utf-8")


def check_size(file: IO[bytes], expected: int) -> None:
    """Refuse a file of another size, in which nothing has its place, as a `ValueError`."""
    more = os.fstat(file.fileno()).st_size - expected
    if more:
        name = Path(file.name).name
        raise ValueError(f"{name} has {abs(more)} bytes too {'many' if more > 0 else 'few'}")


# Writing.


def open_to_write(path: Path, flags: int = 0) -> IO[bytes]:
    """Open a file of a run folder to change it: the one way to do so.

    No link is followed, and a file with another name elsewhere is refused. With `os.O_CREAT` one
    that is missing is made.
    """
    with suppress(FileNotFoundError):
        check_own(path, path.lstat())
    flags |= os.O_RDWR | os.O_NOFOLLOW
    return open(path, "r+b", opener=lambda name, _: os.open(name, flags, 0o644))


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write to a temporary file next to `path`, force it to disk, and rename it into place."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    try:
        with open_to_write(temporary, os.O_CREAT | os.O_EXCL) as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_file(out: Path, content: bytes, folders: bool = False) -> None:
    """Write a file of the user's as a whole, with its folders if so; or say why it cannot be."""
    try:
        if folders:
            out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists() and not out.is_file():  # a device or a pipe, which must not be replaced
            out.write_bytes(content)
        else:
            write_atomically(out, content)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {reason_of(error)}.") from error


def sync(path: Path) -> None:
    """Force a file's content, or a folder's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
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
        raise RunError(
            f"cannot write the run folder '{path}': {reason_of(error)}. Free some space or give "
            "another --out; a run that was saved continues with `maskov resume`."
        ) from error


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
        refuse(
            (
                not ours,
                f"the run folder '{folder}' is in use by another process; wait for it to end.",
            ),
            kind=RunError,
        )
        yield


@contextmanager
def held(file: Path) -> Iterator[bool]:
    """Hold the lock of a file, if nobody else does; say whether it is ours."""
    with explained(file.parent):
        opened = open_to_write(file, os.O_CREAT)
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
