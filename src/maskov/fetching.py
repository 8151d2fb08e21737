"""Models that are too large for the package: fetched once, checked, and kept in a cache folder.

An archive is a plain tar of one model folder, as `recipes/archive.py` makes it. Its size and hash
are recorded here, so that it may come from anywhere: nothing is unpacked before both are right.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

from maskov.errors import InputError, ModelError

# The address that the archives are below, ending in a slash; None until they are published.
PLACE: str | None = None
_TIMEOUT = 30.0
_CHUNK = 1 << 20
_MOST_FILES = 32
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Archive:
    """The archive of a model: the name of its file, its size in bytes and its SHA-256."""

    name: str
    file: str
    bytes: int
    sha256: str


_SMALL = "0f2c6cfa25cc438591cdd363455d2a2ac0835b187794ff1f61555ee97c5c853d"
_TWIN = "27cc67a5e74c84ef6e4294af3bd530877c66a508336b06d376abf68f6812ee11"
ARCHIVES = (
    Archive("deroen-small", "deroen-small-1.tar", 48_732_160, _SMALL),
    Archive("deroen-twin", "deroen-twin-1.tar", 48_732_160, _TWIN),
)


def cache_folder() -> Path:
    """Return the folder of fetched models: MASKOV_CACHE, or `maskov` in the user's cache."""
    chosen = os.environ.get("MASKOV_CACHE")
    if chosen:
        return Path(chosen) / "models"
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or os.path.expanduser("~/.cache")) / "maskov" / "models"


def is_fetchable(name: str) -> bool:
    """Whether an archive of this model is known."""
    return any(archive.name == name for archive in ARCHIVES)


def fetch(
    name: str,
    source: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Fetch a model into the cache, unless it is there, and return its folder.

    `source` is the address or the file of its archive, wherever that is; the hash is the same.
    `progress` is called with the bytes read and those there are.
    """
    archive = next((archive for archive in ARCHIVES if archive.name == name), None)
    if archive is None:
        known = ", ".join(archive.name for archive in ARCHIVES)
        raise InputError(f"no model '{name}' can be fetched; there are {known}.")
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    if source is None and PLACE is None:
        raise ModelError(
            f"the archive of '{name}' is not published yet: clone the repository and set "
            "MASKOV_MODELS to its models/ folder, or give the archive with --from."
        )
    address = source if source is not None else f"{PLACE}{archive.file}"
    incoming = cache_folder().parent / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=incoming) as scratch:
        file = Path(scratch) / archive.file
        with _opened(address) as stream, file.open("wb") as copy:
            _copy(stream, copy, archive, address, progress)
        unpacked = Path(scratch) / "unpacked"
        _unpack(file, archive, unpacked)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # where another process was first, its folder is as good
                raise
    return folder


@contextmanager
def _opened(address: str) -> Iterator[BufferedIOBase]:
    """Open an address or a file; what goes wrong, also while it is read, is one sentence."""
    # Here, so that commands which fetch nothing start without them.
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        if address.startswith(("http://", "https://")):
            with urlopen(address, timeout=_TIMEOUT) as response:
                yield response
        elif "://" in address:
            raise InputError(f"'{address}' is neither a file nor an http or https address.")
        else:
            path = Path(address).expanduser()
            if not path.is_file():  # a pipe or a device could be read without an end
                raise InputError(f"'{address}' is not a file.")
            with path.open("rb") as stream:
                yield stream
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise ModelError(f"'{address}' could not be read: {reason}.") from error


def _copy(
    stream: BufferedIOBase,
    copy: BufferedIOBase,
    archive: Archive,
    address: str,
    progress: Callable[[int, int], None],
) -> None:
    """Copy an archive, never more than it should have, and check its size and hash."""
    found, done = hashlib.sha256(), 0
    while chunk := stream.read(min(_CHUNK, archive.bytes + 1 - done)):
        done += len(chunk)
        if done > archive.bytes:
            break
        found.update(chunk)
        copy.write(chunk)
        progress(done, archive.bytes)
    if done != archive.bytes or found.hexdigest() != archive.sha256:
        raise ModelError(
            f"'{address}' is not the archive of '{archive.name}' (its size or hash differs); "
            "nothing was installed."
        )


def _unpack(file: Path, archive: Archive, folder: Path) -> None:
    """Unpack plain files of one folder, and nothing else."""
    folder.mkdir()
    try:
        with tarfile.open(file, "r:") as members:  # uncompressed: no larger than the file
            for count, member in enumerate(members):
                parent, _, name = member.name.partition("/")
                plain = member.isreg() and parent == archive.name and _FILE.fullmatch(name)
                stream = members.extractfile(member) if plain else None
                if stream is None or count >= _MOST_FILES or (folder / name).exists():
                    raise ModelError(
                        f"the archive of '{archive.name}' holds more than the files of a model; "
                        "nothing was installed."
                    )
                with stream, (folder / name).open("wb") as copy:
                    shutil.copyfileobj(stream, copy)
    except tarfile.TarError as error:
        raise ModelError(
            f"the archive of '{archive.name}' cannot be unpacked; nothing was installed."
        ) from error
    if not (folder / "about.json").is_file():
        raise ModelError(f"the archive of '{archive.name}' is incomplete; nothing was installed.")
