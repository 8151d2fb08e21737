"""Checksums of the traces: one for each group, epoch and trace, so that a changed value is noticed.

They are keyed with the signature of the run, so that the traces of another run do not fit, either.
A checksum has its place in its file, like a row of a trace: writing it twice does no harm.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.runs.coordinator import groups_of
from maskov.runs.files import check_regular, map_array, open_to_write, write_atomically
from maskov.runs.store import TRACES

FILE = "checksums.npy"
_NAMES = tuple(TRACES)
_BYTES = 8


class Checksums:
    """The checksums of a run folder; zero where there is none yet."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.path = folder / FILE
        self.groups = groups_of(manifest)
        self._key = hashlib.sha256(manifest.signature.encode()).digest()
        shape = (manifest.schedule.epochs, len(self.groups), len(_NAMES))
        self._sums = self._read(shape)

    def _read(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Return the checksums on disk, none of them if the file is missing or damaged."""
        check_regular(self.path)
        # Where the first one is in the file, if the file can be used.
        self._start: int | None = None
        try:
            mapped = map_array(self.path, shape, np.uint64)
            self._start = int(mapped.offset)
            return np.array(mapped)
        except Exception:  # a damaged header fails in a dozen ways
            return np.zeros(shape, dtype=np.uint64)

    def write(self, first: int, epoch: int, rows: Mapping[str, bytes]) -> None:
        """Keep the checksums of the rows of a group, whose first chain is `first`."""
        group = first // len(self.groups[0])
        for name, content in rows.items():
            self._sums[epoch, group, _NAMES.index(name)] = self._sum(name, epoch, first, content)
        if self._start is None or not self.path.exists():
            whole = io.BytesIO()
            np.save(whole, self._sums)
            write_atomically(self.path, whole.getvalue())
            self._start = whole.tell() - self._sums.nbytes
            return
        row = self._sums[epoch, group].tobytes()
        with open_to_write(self.path) as file:
            file.seek(self._start + (epoch * len(self.groups) + group) * len(row))
            file.write(row)

    def misfits(
        self, traces: Mapping[str, npt.NDArray[Any]], group: int, epochs: int
    ) -> dict[str, list[int]]:
        """Return the first `epochs` of a group that do not fit, by the name of the trace.

        A trace that is not there fits if none was ever written.
        """
        chains = self.groups[group]
        found: dict[str, list[int]] = {}
        for column, name in enumerate(_NAMES):
            sums = self._sums[:epochs, group, column].tolist()
            trace = traces.get(name)
            if trace is None:
                wrong = [epoch for epoch, known in enumerate(sums) if known]
            else:
                rows = trace[:epochs, chains.start : chains.stop]
                wrong = [
                    epoch
                    for epoch, known in enumerate(sums)
                    if known != self._sum(name, epoch, chains.start, _bytes(rows[epoch]))
                ]
            if wrong:
                found[name] = wrong
        return found

    def _sum(self, name: str, epoch: int, first: int, content: bytes) -> int:
        place = f"{name}:{epoch}:{first}:".encode()
        digest = hashlib.blake2b(place + content, digest_size=_BYTES, key=self._key).digest()
        return int.from_bytes(digest, "little") or 1


def _bytes(row: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(row).tobytes()


def in_words(numbers: Sequence[int]) -> str:
    """Return epochs, counted from 1, as ranges: `epochs 2-4 and 7`."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(a + 1) if a == b else f"{a + 1}-{b + 1}" for a, b in ranges]
    if len(shown) > 1:
        shown = [", ".join(shown[:-1]) + " and " + shown[-1]]
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'epoch' if one else 'epochs'} {shown[0]}"
