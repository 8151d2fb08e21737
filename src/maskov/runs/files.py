"""Read and write the files of a run folder, which may be anybody's.

Only regular files are opened: a pipe in place of a file would keep its reader waiting for ever.
Reading is bounded, since a file may be larger than memory. Writing follows no links, and a crash at
any moment leaves the old or the new content, never half.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from maskov.errors import RunError

# The most bytes of a manifest and the like, of one line, and of the header of an array.
MOST_BYTES, MOST_LINE, _MOST_HEADER = 2**28, 2**24, 2**12
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: Path) -> None:
    """Refuse a pipe, a socket or a device; what is missing or a folder is told by who opens it."""
    with suppress(OSError, ValueError):
        _check_kind(path, os.stat(path))


def _check_kind(path: Path, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind in _KINDS:
        raise RunError(f"'{path}' is no regular file but {_KINDS[kind]}; put a file there.")


def _check_names(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise RunError(
            f"'{path}' has another name elsewhere (a hard link), where writing would be seen; put "
            "a copy of it there."
        )


def _is_link(path: Path) -> RunError:
    return RunError(f"'{path}' is a link that leads out of its run folder; put a file there.")


def check_own(folder: Path) -> None:
    """Refuse a folder in which something is a link, or no file and no folder.

    Whatever a link leads to is nobody's to write to.
    """
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise _is_link(path)
        check_regular(path)
        _check_names(path, path.stat())


# Reading.


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading; refuse anything else without waiting for it."""
    check_regular(path)

    def opener(name: str, flags: int) -> int:
        # It may have been replaced since: then at least nothing waits.
        handle = os.open(name, flags | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise RunError(f"'{path}' is no regular file; put one there.")
        return handle

    return open(path, "rb", opener=opener)


def read_text(path: Path) -> str:
    """Return the text of a file; refuse one that is larger than any run writes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise RunError(
                f"'{path}' has more than {MOST_BYTES >> 20} MiB, which no run writes; put the "
                "right file there."
            )
        return file.read(MOST_BYTES).decode("utf-8")


def read_lines(path: Path, most: int) -> Iterator[str]:
    """Yield the lines of a file; more than `most`, or a longer one than any run writes, are damage.

    Damage is a `ValueError`.
    """
    with open_regular(path) as file:
        for number in range(1, most + 2):
            line = file.readline(MOST_LINE + 1)
            if not line:
                return
            if len(line) > MOST_LINE:
                raise ValueError(f"line {number} has more than {MOST_LINE >> 20} MiB")
            if number > most:
                raise ValueError(f"there are more than {most} lines")
            yield line.decode("utf-8")


def map_array(
    path: Path, shape: tuple[int, ...], kind: type[np.generic]
) -> np.memmap[Any, np.dtype[Any]]:
    """Map the array in a file, whose `offset` is where it begins; refuse any other than this one.

    A header may promise more than there is, or than memory holds. What is damaged is a `ValueError`
    or, since a header fails in a dozen ways, any other exception.
    """
    with open_regular(path) as file:
        start = io.BytesIO(file.read(_MOST_HEADER))
        if np.lib.format.read_magic(start) != (1, 0):
            raise ValueError(f"{path.name} is of another format")
        if np.lib.format.read_array_header_1_0(start) != (shape, False, np.dtype(kind)):
            raise ValueError(f"{path.name} is not of this run")
        check_size(path, file, start.tell() + prod(shape) * np.dtype(kind).itemsize)
        return np.memmap(file, kind, "r", start.tell(), shape)


def check_size(path: Path, file: IO[bytes], expected: int) -> None:
    """Refuse a file of another size, in which nothing has its place, as a `ValueError`."""
    more = os.fstat(file.fileno()).st_size - expected
    if more:
        raise ValueError(f"{path.name} has {abs(more)} bytes too {'many' if more > 0 else 'few'}")


# Writing.


def open_to_write(path: Path, within: Path | None = None, flags: int = 0) -> IO[bytes]:
    """Open a file of a run folder to change it: the one way to do so.

    No link is followed below `within`, the folder that the user named (default: the one it lies
    in), and a file with another name elsewhere is refused. With `os.O_CREAT` one that is missing is
    made; with `os.O_EXCL`, too, a new one takes the place of any other.
    """
    top = within or path.parent
    *folders, name = path.relative_to(top).parts
    inner, folder = top, os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            inner = inner / part
            flag = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            handle = os.open(part, flag, dir_fd=folder)
            os.close(folder)
            folder = handle
        inner = path
        if flags & os.O_EXCL:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        handle = os.open(
            name, flags | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=folder
        )
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and inner.is_symlink():
            raise _is_link(inner) from error
        raise
    finally:
        os.close(folder)
    try:
        found = os.fstat(handle)
        _check_kind(path, found)
        _check_names(path, found)
        return os.fdopen(handle, "r+b")
    except BaseException:
        os.close(handle)
        raise


def write_new(path: Path, content: bytes | npt.NDArray[Any], within: Path | None = None) -> None:
    """Write a file, in place of any other of its name, and force it to disk."""
    with open_to_write(path, within, os.O_CREAT | os.O_EXCL) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            np.save(file, content)
        file.flush()
        os.fsync(file.fileno())


def write_atomically(path: Path, content: bytes, within: Path | None = None) -> None:
    """Write to a temporary file beside `path`, force it to disk, and rename it into place."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_new(temporary, content, within)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Force a file's content to disk."""
    with open_regular(path) as file:
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
