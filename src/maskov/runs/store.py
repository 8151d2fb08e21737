"""The results of a run: arrays and samples, in memory or in a run folder.

The arrays hold everything; samples are a view of them. A row of an array has its place, so that
writing it twice does no harm. A run folder outlives the process, whatever ends it. It holds

    manifest.json     what was asked for, with the full signature
    traces.npy        epochs × chains: a record of what each chain came to in each epoch
    tokens.npy        epochs × chains: its tokens, and where a proposal was rejected; large runs
                      have only the tokens of the epochs with samples
    samples.jsonl     one sample a line: a view of the arrays, appended as epochs end, and written
                      again from its beginning when the run is resumed
    tokens.json       the texts of the tokens in the arrays, by number
    checkpoints/      the newest state of each group of chains and the one before it; the fields of
                      the manifest as they were when the first of them was written
    lock              held while a process works here
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest, fields_of, from_json, read_manifest
from maskov.errors import InputError, RunError, refuse, refusing
from maskov.execution.buffers import COUNTS, ENERGIES
from maskov.runs.files import (
    MOST_BYTES,
    check_folder,
    check_own,
    check_size,
    explained,
    open_regular,
    open_to_write,
    read_text,
    sync,
    write_atomically,
)
from maskov.runs.state import (
    GroupShape,
    GroupState,
    cut,
    kept_epochs,
    load_checkpoint,
    save_checkpoint,
)
from maskov.types import Sample, Traces

# Epochs × chains × positions up to which what happens at each position is traced.
_MOST_PLACES = 2**24
_MOST_LINE = 2**24
_CHECKSUM = "checksum"

# The kind of a field, and its shape where a chain has more than one entry.
Field = tuple[str, type[np.generic], tuple[int, ...]]


def _traced_fields(manifest: Manifest) -> list[Field]:
    """Return what a chain has in an epoch: energies at its end, and what was counted within it."""
    experts = (len(manifest.experts),)
    fields: list[Field] = [
        *((name, np.float64, ()) for name in ENERGIES),
        ("lengths", np.int32, ()),
        ("sizes", np.int32, (manifest.regions,)),
        ("expert_energy", np.float64, experts),
        ("expert_calls", np.int64, experts),
    ]
    if manifest.particles:
        fields += [("log_weight", np.float64, ()), ("ancestor", np.int32, ())]
    # Steps last: who reads along takes a record that has some for a whole one.
    fields += [(name, np.int64, ()) for name in sorted(COUNTS, key=lambda name: name == "steps")]
    return [field for field in fields if field[2] != (0,)]


class Records:
    """A record of each chain in some epochs: in memory, or in a file of the format of NumPy.

    What a group of chains came to in an epoch is written at once. Its first record has a checksum
    of all, which belongs to the run (by its `key`), the array, the epoch and the chains.
    """

    def __init__(
        self, path: Path | None, key: str, epochs: Sequence[int], chains: int, fields: list[Field]
    ) -> None:
        self.path = path
        self.epochs = epochs
        self.names = [name for name, *_ in fields]
        self._key = hashlib.sha256(f"{self.names}{key}".encode()).digest()
        self._kind = np.dtype([(_CHECKSUM, np.uint64), *fields])
        self._shape = (len(epochs), chains)
        start = io.BytesIO()
        described = {"descr": np.lib.format.dtype_to_descr(self._kind), "fortran_order": False}
        np.lib.format.write_array_header_1_0(start, described | {"shape": self._shape})
        self._start = start.getvalue()
        self._size = len(self._start) + prod(self._shape) * self._kind.itemsize

    def _empty(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        empty = np.zeros(shape, self._kind)
        for name in self.names:
            if self._kind[name].base == np.float64:
                empty[name] = np.nan
        return empty

    @cached_property
    def _held(self) -> npt.NDArray[Any]:
        return self._empty(self._shape)

    def create(self) -> None:
        """Make the file, unless it is there."""
        if self.path is not None and not self.path.exists():
            row = self._empty(self._shape[1:]).tobytes()
            write_atomically(self.path, (self._start, *[row] * self._shape[0]))

    def read(self) -> npt.NDArray[Any]:
        """Return all records, or say why they cannot be read and how to make them again.

        Nothing in the file is believed: its header must be the one that this run writes.
        """
        if self.path is None:
            return self._held
        try:
            with open_regular(self.path) as file:
                refuse(
                    (
                        file.read(len(self._start)) != self._start,
                        f"{self.path.name} is not of this run",
                    ),
                    kind=ValueError,
                )
                check_size(file, self._size)
                return np.memmap(file, self._kind, "r", len(self._start), self._shape)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            remove = f"remove {self.path.name}, and " if self.path.exists() else ""
            raise RunError(
                f"the traces of '{self.path.parent}' cannot be read: {reason}; {remove}`maskov "
                f"resume {self.path.parent}` makes it again."
            ) from error

    def write(self, epoch: int, first: int, values: Traces) -> None:
        """Keep what the chains from `first` on came to in an epoch, if it has a row here."""
        if epoch not in self.epochs:
            return
        rows = np.zeros(len(values["steps"]), self._kind)
        for name in self.names:
            rows[name] = values[name]
        rows[_CHECKSUM][0] = self._checksum(epoch, first, rows)
        row = self.epochs.index(epoch)
        if self.path is None:
            self._held[row, first : first + len(rows)] = rows
            return
        with explained(self.path.parent), open_to_write(self.path) as file:
            check_size(file, self._size)
            file.seek(len(self._start) + (row * self._shape[1] + first) * self._kind.itemsize)
            file.write(rows.tobytes())

    def _checksum(self, epoch: int, first: int, rows: npt.NDArray[Any]) -> int:
        rows = rows.copy()
        rows[_CHECKSUM] = 0
        content = f"{epoch}:{first}:".encode() + rows.tobytes()
        found = hashlib.blake2b(content, digest_size=8, key=self._key).digest()
        return int.from_bytes(found, "little") or 1

    def written(self, chains: range) -> int:
        """Return the last epoch that these chains have begun to write."""
        return int(self.read()[_CHECKSUM][:, chains.start].nonzero()[0].max(initial=0))

    def misfits(self, chains: range, epochs: int) -> list[int]:
        """Return those of the first epochs whose records are not what these chains have written."""
        epochs_here = [epoch for epoch in self.epochs if epoch < epochs]
        try:
            held = self.read()[:, chains.start : chains.stop]
        except RunError:
            return epochs_here
        return [
            epoch
            for row, epoch in enumerate(epochs_here)
            if held[row, 0][_CHECKSUM] != self._checksum(epoch, chains.start, held[row])
        ]


class Store:
    """The results of a run: without a `path` they end with the process."""

    def __init__(self, manifest: Manifest, path: Path | None = None) -> None:
        self.manifest = manifest
        self.groups = cut(manifest.chains, manifest.config.execution.resident)
        # The files that were damaged and what became of their chains, in sentences.
        self.recovered: list[str] = []
        self._path = path
        self._samples: list[Sample] = []
        self._spellings: dict[int, str] = {}
        # Groups whose rows fit, by reading them or having written them: these are not read again.
        self._fitting: set[int] = set()

    @cached_property
    def _arrays(self) -> dict[str, Records]:
        """What happens at each position, of small runs at each epoch, and the traces."""
        manifest, epochs = self.manifest, range(self.manifest.schedule.epochs)
        places: list[Field] = [("tokens", np.int32, (manifest.width,))]
        if small := len(epochs) * manifest.chains * manifest.width <= _MOST_PLACES:
            places.append(("rejected", np.bool_, (manifest.width,)))
        described: dict[str, tuple[Sequence[int], list[Field]]] = {
            "tokens": (epochs if small else kept_epochs(manifest), places),
            "traces": (epochs, _traced_fields(manifest)),
        }
        return {
            name: Records(
                None if self._path is None else self._path / f"{name}.npy",
                manifest.signature, rows, manifest.chains, fields,
            )
            for name, (rows, fields) in described.items()
        }  # fmt: skip

    @property
    def path(self) -> Path:
        """The run folder."""
        assert self._path is not None
        return self._path

    @property
    def durable(self) -> bool:
        """Whether there is a run folder, from which a later process can continue."""
        return self._path is not None

    # Run folders.

    @classmethod
    def check_free(cls, path: Path) -> None:
        """Refuse a path that holds something already, before any work is done."""
        with explained(path):
            refuse(
                (
                    (path / "manifest.json").is_file(),
                    f"'{path}' already holds a run; continue with `maskov resume {path}` or give "
                    "another --out.",
                ),
                kind=RunError,
            )
            # The manifest is what is written first.
            left = {"lock", "manifest.json.tmp"}
            refuse(
                (
                    path.exists() and not (path.is_dir() and set(os.listdir(path)) <= left),
                    f"'{path}' already holds something else; give another --out.",
                ),
                kind=RunError,
            )

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> Store:
        """Fill an empty folder; if that fails, it is empty again."""
        cls.check_free(path)
        store = cls(manifest, path)
        try:
            with explained(path):
                store._write_manifest()
                sync(path.parent)
            store.prepare()
        except RunError:
            store.discard()
            raise
        return store

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open an existing run folder."""
        with refusing(
            f"'{path}' is not a run folder: it has no readable manifest.",
            OSError,
            ValueError,
            kind=RunError,
        ):
            text = read_text(path / "manifest.json")
        return cls(read_manifest(text, str(path)), path)

    def discard(self) -> None:
        """Remove what `create` made, the manifest first, so half of it is not a run."""
        files = ("manifest.json", "samples.jsonl", "tokens.json", "traces.npy", "tokens.npy")
        for name in files:
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def check_resumable(self) -> None:
        """Refuse to continue a run that was changed, leads elsewhere or has damaged traces."""
        self.check_unchanged()
        check_folder(self.path)
        saved = self.path / "checkpoints"
        refuse(
            (
                saved.exists() and not saved.is_dir(),
                f"'{saved}' is not a folder; remove it, and the run starts again.",
            ),
            kind=RunError,
        )
        for array in self._arrays.values():
            if array.path is not None and array.path.exists():
                array.read()

    def check_unchanged(self) -> None:
        """Refuse a manifest that is not the one of the first checkpoint."""
        try:
            expected, _, text = read_text(self.path / "checkpoints" / "manifest").partition("\n")
            whole = hashlib.sha256(text.encode()).hexdigest() == expected
            before = json.loads(text) if whole else {}
        except (OSError, ValueError):  # damaged, it proves nothing
            return
        now = fields_of(self.manifest)
        # One that is missing is not what it was, either.
        names = sorted(before.keys() | now.keys()) if before else []
        refuse(
            *(
                (
                    before.get(name, name) != now.get(name, name),
                    f"the manifest of '{self.path}' was changed after the run began: '{name}' is "
                    "not what it was; put it back, or start a new run.",
                )
                for name in names
            ),
            kind=RunError,
        )

    def prepare(self) -> None:
        """Make what a run needs to begin or to continue, and is not there.

        What was lost does not fit the checkpoints: its chains start again, and that is told.
        """
        with explained(self.path):
            (self.path / "checkpoints").mkdir(exist_ok=True)
            for array in self._arrays.values():
                array.create()
            open_to_write(self.path / "samples.jsonl", os.O_CREAT).close()
            sync(self.path)

    def note(self, **found: Any) -> None:
        """Add to the manifest something that the run has found out."""
        self.manifest = replace(self.manifest, **found)
        if self.durable:
            with explained(self.path):
                self._write_manifest()

    def _write_manifest(self) -> None:
        text = json.dumps(asdict(self.manifest), indent=2, ensure_ascii=False).encode()
        refuse(
            (
                len(text) > MOST_BYTES,
                f"the manifest would have more than {MOST_BYTES >> 20} MiB: give fewer or shorter "
                "texts, in several runs.",
            ),
            kind=RunError,
        )
        write_atomically(self.path / "manifest.json", text)

    # Arrays.

    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Keep what the chains from `first` on came to in an epoch."""
        for array in self._arrays.values():
            array.write(epoch, first, values)

    def traced(self) -> dict[str, Records]:
        """Return the array of each trace.

        Large runs do not trace what happens at positions. The file of it may be removed, too.
        """
        arrays, places = [self._arrays["traces"]], self._arrays["tokens"]
        if "rejected" in places.names and (places.path is None or places.path.exists()):
            arrays.append(places)
        return {name: array for array in arrays for name in array.names}

    def traces(self) -> Traces:
        """Return the traces, epochs × chains; without epochs after one that ended the run."""
        # Copies: records on disk may change, and other libraries cannot read fields of records.
        return {
            name: np.array(one.read()[name][: self.manifest.epochs])
            for name, one in self.traced().items()
        }

    def row(self, epoch: int) -> Traces:
        """Return what all chains came to in an epoch."""
        row = self._arrays["traces"].read()[epoch]
        return {name: np.array(row[name]) for name in self._arrays["traces"].names}

    def tokens(self, epoch: int) -> npt.NDArray[Any]:
        """Return the tokens of all chains at the end of an epoch with samples."""
        array = self._arrays["tokens"]
        return np.array(array.read()["tokens"][array.epochs.index(epoch)])

    def _misfits(self, group: int, epochs: int) -> str:
        """Say which arrays do not have what a group came to in its first epochs, if any."""
        found = {n: one.misfits(self.groups[group], epochs) for n, one in self._arrays.items()}
        told = [
            f"{name}.npy ({len(wrong)} epoch{'s' * (len(wrong) > 1)}, from epoch {wrong[0] + 1} on)"
            for name, wrong in found.items()
            if wrong
        ]
        chains = self.groups[group]
        which = f"chains {chains[0]} to {chains[-1]}"
        return f"the records of {which} in {' and '.join(told)} do not fit the run" if told else ""

    def damage_note(self) -> str | None:
        """Say which traces do not fit the run and how to make them again, if any."""
        if not self.durable:
            return None
        over = self.manifest.epochs if self.manifest.samples_hash is not None else None
        found = [
            self._misfits(group, self._arrays["traces"].written(chains) if over is None else over)
            for group, chains in enumerate(self.groups)
        ]
        told = "; ".join(filter(None, found))
        if not told:
            return None
        return (
            f"{told}: values were changed or lost; `maskov resume {self.path}` runs these chains "
            "again, to the same samples"
        )

    # Samples.

    def sampled(self, closed: int) -> Sequence[int]:
        """Return those of the first so many epochs that have samples."""
        thin, last = self.manifest.config.thin, self.manifest.epochs - 1
        kept = (epoch for epoch in kept_epochs(self.manifest) if epoch < closed)
        return [epoch for epoch in kept if thin or epoch == last]

    def begin_samples(self) -> None:
        """Empty the file of samples, which are then written from the first."""
        if self.durable:
            known = self.manifest.samples_hash
            if known is not None and known != self._hash_of_samples():
                self.recovered.append("samples.jsonl was damaged; it is written again")
            with explained(self.path), open_to_write(self.path / "samples.jsonl") as file:
                file.truncate(0)

    def write_samples(self, samples: Iterable[Sample]) -> None:
        """Keep the samples of an epoch, after those of the epochs before."""
        if not self.durable:
            self._samples += samples
            return
        with explained(self.path), open_to_write(self.path / "samples.jsonl", os.O_APPEND) as file:
            # At once: who reads along sees whole lines.
            file.write(b"".join(sample.to_json().encode() + b"\n" for sample in samples))

    def end_samples(self) -> None:
        """Note what the samples of a run that is over are, so that damage is noticed."""
        if self.durable:
            self._sync()
            self.note(samples_hash=self._hash_of_samples())

    def _hash_of_samples(self) -> str | None:
        """Return a hash of the file and of the epoch that the last samples are of."""
        with suppress(OSError), open_regular(self.path / "samples.jsonl") as file:
            return f"{self.manifest.epochs}:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        return None

    def samples(self) -> list[Sample]:
        """Return the samples kept so far."""
        if not self.durable:
            return list(self._samples)
        most, found = len(self.sampled(self.manifest.epochs)) * self.manifest.chains, list[Sample]()
        try:
            with open_regular(self.path / "samples.jsonl") as file:
                while line := file.readline(_MOST_LINE):
                    found.append(from_json(Sample, line.decode()))
                    refuse(
                        (len(found) > most, f"there are more than {most} lines"), kind=ValueError
                    )
        except (OSError, ValueError, InputError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
            raise RunError(
                f"the samples of '{self.path}' are damaged ({reason}); `maskov resume "
                f"{self.path}` writes them again."
            ) from error
        return found

    def spell(self, tokens: set[int], texts: Callable[[list[int]], list[str]]) -> None:
        """Keep the texts of tokens that the traces hold, in the order of their numbers."""
        known = self._spellings or self.spellings()
        new = sorted(tokens - known.keys())
        if new:
            known |= zip(new, texts(new), strict=True)
            self._spellings = dict(sorted(known.items()))
            if self.durable:
                with explained(self.path):
                    write_atomically(
                        self.path / "tokens.json", json.dumps(self._spellings).encode()
                    )

    def spellings(self) -> dict[int, str]:
        """Return these texts, if they are known; damaged ones are not needed."""
        if not self.durable:
            return self._spellings
        try:
            found = json.loads(read_text(self.path / "tokens.json"))
            return {int(token): str(text) for token, text in found.items()}
        except (OSError, ValueError, AttributeError, RecursionError, RunError):
            return {}

    # Groups of chains.

    def _sync(self) -> None:
        with explained(self.path):
            for name in (*(f"{name}.npy" for name in self._arrays), "samples.jsonl"):
                sync(self.path / name)

    def save(self, group: int, state: GroupState) -> None:
        """Write a checkpoint, once everything that it relies on is on the disk."""
        if not self.durable:
            return
        saved = self.path / "checkpoints"
        self._sync()
        with explained(self.path):
            # Whoever removed it meanwhile loses no more than what was in it.
            saved.mkdir(exist_ok=True)
            check_own(saved, saved.lstat())
            if not (saved / "manifest").exists():
                text = json.dumps(fields_of(self.manifest)).encode()
                proof = hashlib.sha256(text).hexdigest().encode()
                write_atomically(saved / "manifest", proof + b"\n" + text)
            save_checkpoint(saved, group, state, self.manifest.signature)
        self._fitting.add(group)

    def load(self, group: int, shape: GroupShape) -> GroupState | None:
        """Read the newest whole checkpoint of a group whose rows are those that were written."""
        if not self.durable:
            return None
        state, damaged = load_checkpoint(
            self.path / "checkpoints", group, shape, self.manifest.signature
        )
        notes = []
        if damaged:
            after = "continue from an earlier one" if state else "start again from their beginning"
            names = ", ".join(file.name for file in damaged)
            notes.append(f"{names} was damaged; its chains {after}")
        if state is not None and group not in self._fitting:
            if misfits := self._misfits(group, state.epoch):
                notes.append(f"{misfits}; they start again from their beginning")
                state = None
            else:
                self._fitting.add(group)
        self.recovered += [note for note in notes if note not in self.recovered]
        return state

    @property
    def finished(self) -> bool:
        """Whether every epoch was run and every sample kept, and all are as they were written."""
        known = self.manifest.samples_hash
        return not self.durable or (
            known is not None and known == self._hash_of_samples() and self.damage_note() is None
        )
