"""A run folder: where results outlive the process, whatever ends it.

It holds

    manifest.json     what was asked for, with the full signature
    samples.jsonl     one sample a line
    traces/*.npy      one array per quantity, epochs × chains; of small runs also the tokens and
                      rejections at each position, and of replicas what happened to each
    tokens.json       the texts of the tokens in the traces, by number
    checksums.npy     of the rows of the traces
    checkpoints/      the newest state of each group of chains and the one before it
    lock              held while a process works here
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from maskov.config import Manifest, field_hashes, read_manifest, to_json
from maskov.errors import RunError
from maskov.runs import checkpoint, checksums
from maskov.runs.checkpoint import Cursor, Saved
from maskov.runs.checksums import Checksums, in_words
from maskov.runs.files import (
    MOST_BYTES,
    check_own,
    check_regular,
    check_size,
    explained,
    map_array,
    open_regular,
    open_to_write,
    read_lines,
    read_text,
    sync_file,
    sync_folder,
    write_atomically,
    write_new,
)
from maskov.runs.group import PLACES
from maskov.runs.sample import Sample
from maskov.runs.store import TRACES, WIDE, Store, empty_traces, trace_shape
from maskov.runs.validation import GroupShape
from maskov.types import Traces

_UNFINISHED = {"lock", "traces", "checkpoints", "samples.jsonl", "manifest.json.tmp"}


class RunFolder(Store):
    """Results on disk."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        # What was found damaged and what became of it, in sentences.
        self.recovered: list[str] = []
        # The files because of which a run has to start from its beginning.
        self.lost: list[Path] = []
        # Traces with rows that a loss of power would lose.
        self._unsynced: set[Path] = set()
        # Groups whose rows fit, by reading them or having written them: these are not read again.
        self._fitting: set[int] = set()
        # Where the rows of a trace begin.
        self._starts: dict[str, int] = {}
        # The hash of so many bytes of the samples.
        self._samples_hash, self._hashed = hashlib.sha256(), 0

    @classmethod
    def check_free(cls, path: Path) -> None:
        """Refuse a path that holds something already, before any work is done."""
        with explained(path):
            if not path.exists():
                return
            if _is_leftover(path):
                check_own(path)
                return
            if (path / "manifest.json").is_file():
                raise RunError(
                    f"'{path}' already holds a run; go on with `maskov resume {path}` or give "
                    "another --out."
                )
            raise RunError(f"'{path}' already holds something else; give another --out.")

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunFolder:
        """Fill an empty folder; if that fails, it is empty again."""
        cls.check_free(path)
        try:
            with explained(path):
                (path / "traces").mkdir(parents=True, exist_ok=True)
                (path / "checkpoints").mkdir(exist_ok=True)
                for name, array in empty_traces(manifest):
                    write_new(path / "traces" / f"{name}.npy", array, path)
                open_to_write(path / "samples.jsonl", path, os.O_CREAT).close()
                for folder in (path / "traces", path, path.parent):
                    sync_folder(folder)
                # Last: a folder is a run once it has its manifest.
                cls(path, manifest)._write_manifest()
        except RunError:
            cls(path, manifest).discard()
            raise
        return cls(path, manifest)

    def check_unchanged(self) -> None:
        """Refuse a manifest that is not the one that the checkpoints belong to."""
        name = checkpoint.changed_field(self.path / "checkpoints", self._fields)
        if name is not None:
            raise RunError(
                f"the manifest of '{self.path}' was changed after the run began: '{name}' is not "
                "what it was; put it back, or start a new run."
            )

    def check_resumable(self) -> None:
        """Refuse to continue a run whose folder leads elsewhere or whose traces are damaged."""
        check_own(self.path)
        saved = self.path / "checkpoints"
        if saved.exists() and not saved.is_dir():
            raise RunError(f"'{saved}' is no folder; remove it, and the run starts again.")
        for name in TRACES:
            if (self.path / "traces" / f"{name}.npy").exists():
                self._read_trace(name)

    def prepare(self) -> None:
        """Put back what a run needs to go on, once nothing speaks against it."""
        start_over = self.cut_short
        with explained(self.path):
            # Without checkpoints a run starts from its beginning.
            (self.path / "checkpoints").mkdir(exist_ok=True)
            (self.path / "traces").mkdir(exist_ok=True)
            for file in self.path.glob("checkpoints/*.checkpoint") if start_over else ():
                # Otherwise, stopped again, the run would have to start over again.
                file.unlink()
            for name, array in empty_traces(self.manifest):
                path = self.path / "traces" / f"{name}.npy"
                if not path.exists():
                    # Its rows do not fit: the chains start again, and that is told.
                    write_new(path, array, self.path)
            sync_folder(self.path / "traces")

    @cached_property
    def _fields(self) -> dict[str, str]:
        return field_hashes(self.manifest)

    def discard(self) -> None:
        """Remove what `create` made, the manifest first, so that half of it is no run."""
        for name in (checksums.FILE, "manifest.json", *sorted(_UNFINISHED - {"lock"})):
            _remove(self.path / name)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder."""
        return cls(path, _read_manifest(path))

    durable = True

    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Overwrite the places of these chains, so that writing them twice does no harm."""
        before = epoch * self.manifest.chains + first
        written: dict[str, bytes] = {}
        with explained(self.path):
            # Steps last: who reads along takes an epoch that has some for a whole one.
            for name, rows in sorted(values.items(), key=lambda item: item[0] == "steps"):
                path = self.path / "traces" / f"{name}.npy"
                if name in PLACES and not path.exists():
                    continue
                content = np.ascontiguousarray(rows, dtype=TRACES[name]).tobytes()
                written[name] = content
                each = len(content) // len(rows)
                start = self._start(name)
                self._unsynced.add(path)
                with open_to_write(path, self.path) as file:
                    with self._readable(name):
                        check_size(path, file, start + self._cells * each)
                    file.seek(start + before * each)
                    file.write(content)
            self._checksums.write(first, epoch, written)
            self._unsynced.add(self._checksums.path)

    def row(self, epoch: int) -> Traces:
        """Read one row of each trace."""
        found: Traces = {}
        for name, kind in TRACES.items():
            if name in WIDE:
                continue
            chains = self.manifest.chains
            start = self._start(name)
            with open_regular(self.path / "traces" / f"{name}.npy") as file:
                file.seek(start + epoch * chains * np.dtype(kind).itemsize)
                found[name] = np.fromfile(file, dtype=kind, count=chains)
        return found

    def write_samples(self, samples: Iterable[Sample], after: int) -> tuple[int, str]:
        """Cut the file where finished epochs end and append."""
        path = self.path / "samples.jsonl"
        with explained(self.path), open_to_write(path, self.path, os.O_CREAT) as file:
            if self._hashed != after:
                self._samples_hash, _ = _hash_of(path, after)
            file.truncate(after)
            file.seek(after)
            for sample in samples:
                line = sample.to_json().encode() + b"\n"
                self._samples_hash.update(line)
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._hashed = file.tell()
            return self._hashed, self._samples_hash.hexdigest()

    def cut_samples(self) -> None:
        """Cut whatever follows the last sample of a finished run."""
        end = self.cursor().samples_bytes
        if (self.path / "samples.jsonl").stat().st_size > end:
            self.write_samples((), end)

    def save(self, group: int, saved: Saved) -> None:
        """Write a checkpoint, once everything that it relies on is on the disk."""
        with explained(self.path):
            for path in sorted(self._unsynced):
                sync_file(path)
            self._unsynced.clear()
            # Whoever removed it meanwhile loses no more than what was in it.
            (self.path / "checkpoints").mkdir(exist_ok=True)
            checkpoint.save(self.path / "checkpoints", group, saved, self._fields)
            self._fitting.add(group)

    def load(self, group: int, shape: GroupShape) -> tuple[Saved | None, list[Path]]:
        """Read the newest whole checkpoint of a group; also return the damaged files.

        Samples that are gone can only be drawn again: such a run starts from its beginning.
        """
        if self.cut_short and group not in self._fitting:
            return None, []
        saved, damaged = checkpoint.load(self.path / "checkpoints", group, shape)
        if damaged:
            after = "go on from an earlier one" if saved else "start again from their beginning"
            names = ", ".join(file.name for file in damaged)
            self._tell(f"{names} was damaged; its chains {after}")
        if saved is None or group in self._fitting:
            return saved, damaged
        misfits = self._misfits(group, saved.state.epoch)
        if not misfits:
            self._fitting.add(group)
            return saved, damaged
        chains = self._checksums.groups[group]
        which = f"chains {chains.start}-{chains.stop - 1}; these start again from their beginning"
        if len(chains) == 1:
            which = f"chain {chains.start}; it starts again from its beginning"
        self._tell(f"{_told(misfits)} of the {which}")
        traces = [self.path / "traces" / f"{name}.npy" for name in misfits]
        return None, [*sorted(self.path.glob(f"checkpoints/{group:05d}-*")), *traces]

    def _tell(self, note: str) -> None:
        if note not in self.recovered:
            self.recovered.append(note)

    @cached_property
    def _checksums(self) -> Checksums:
        return Checksums(self.path, self.manifest)

    def _misfits(self, group: int, epochs: int) -> dict[str, list[int]]:
        """Return which traces do not have what a group came to in its first epochs, and where."""
        found = self._checksums.misfits(self._mapped, group, epochs)
        chains, steps = self._checksums.groups[group], self._mapped.get("steps")
        if steps is not None and not (steps[:epochs, chains.start : chains.stop] > 0).all():
            found.setdefault("steps", list(range(epochs)))
        return found

    @property
    def _mapped(self) -> Traces:
        """The traces that can be read, each on disk until it is looked at."""
        found: Traces = {}
        for name in TRACES:
            with suppress(Exception):  # a damaged header fails in a dozen ways
                found[name] = self._map(name)
        return found

    def damage(self) -> dict[str, list[int]]:
        """Return the traces that do not fit the run, and in which of its finished epochs."""
        closed = checkpoint.cursor(self.path / "checkpoints").closed
        if not 0 < closed <= self.manifest.schedule.epochs:
            return {}
        found: dict[str, list[int]] = {}
        mapped = self._mapped
        for group in range(len(self._checksums.groups)):
            for name, epochs in self._checksums.misfits(mapped, group, closed).items():
                found[name] = sorted({*found.get(name, ()), *epochs})
        return found

    def damage_note(self) -> str | None:
        """Say which traces do not fit the run and how to make them again, if any."""
        found = self.damage()
        if not found:
            return None
        return (
            f"{_told(found)}: values were changed or lost; `maskov resume {self.path}` runs these "
            "chains again, to the same samples"
        )

    def cursor(self) -> Cursor:
        """Read how far the run has come."""
        return Cursor() if self.cut_short else checkpoint.cursor(self.path / "checkpoints")

    @cached_property
    def cut_short(self) -> bool:
        """Whether the run has to start from its beginning.

        Samples that are gone can only be drawn again, and so can the traces of a finished run.
        """
        if self._lacks_samples():
            self._tell("samples.jsonl was damaged; the run starts again from its beginning")
            self.lost = [self.path / "samples.jsonl"]
        elif self._ended:
            damage = self.damage()
            self.lost = [self.path / "traces" / f"{name}.npy" for name in damage]
            if damage:
                self._tell(f"{_told(damage)}; the run starts again from its beginning")
        return bool(self.lost)

    @property
    def _ended(self) -> bool:
        closed = checkpoint.cursor(self.path / "checkpoints").closed
        return closed == self.manifest.epochs

    def _lacks_samples(self) -> bool:
        """Whether the samples of epochs that are over are not all there, or were changed."""
        cursor = checkpoint.cursor(self.path / "checkpoints")
        epochs = self.manifest.epochs
        if not 0 <= cursor.closed <= epochs or cursor.samples_bytes < 0:
            return True
        hash_, lines = _hash_of(self.path / "samples.jsonl", cursor.samples_bytes)
        if lines != self._kept(cursor.closed):
            return True
        return bool(cursor.samples_bytes) and hash_.hexdigest() != cursor.samples_hash

    def _kept(self, closed: int) -> int:
        """Return how many samples are kept of the first so many epochs."""
        manifest, thin = self.manifest, self.manifest.config.thin
        kept = int(closed == manifest.epochs)
        if thin:
            kept = max(closed - manifest.schedule.burn_in, 0) // thin
        return kept * manifest.chains

    def note(self, **found: Any) -> None:
        """Add to the manifest."""
        self.manifest = replace(self.manifest, **found)
        vars(self).pop("_fields", None)
        with explained(self.path):
            self._write_manifest()

    def _write_manifest(self) -> None:
        text = json.dumps(to_json(self.manifest), indent=2, ensure_ascii=False).encode()
        if len(text) > MOST_BYTES:
            raise RunError(
                f"the manifest would have more than {MOST_BYTES >> 20} MiB: give fewer or shorter "
                "texts, in several runs."
            )
        write_atomically(self.path / "manifest.json", text)

    def spell(self, texts: dict[int, str]) -> None:
        """Write the texts of tokens, in the order of their numbers."""
        content = json.dumps(dict(sorted(texts.items())))
        with explained(self.path):
            write_atomically(self.path / "tokens.json", content.encode())

    def spellings(self) -> dict[int, str]:
        """Read the texts of tokens; older runs have none, and damaged ones are not needed."""
        try:
            found = json.loads(read_text(self.path / "tokens.json"))
            return {int(token): str(text) for token, text in found.items()}
        except (OSError, ValueError, AttributeError, RecursionError, RunError):
            return {}

    def samples(self) -> list[Sample]:
        """Read the samples kept so far."""
        try:
            lines = read_lines(self.path / "samples.jsonl", self._kept(self.manifest.epochs))
            return [Sample(**json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
            raise RunError(
                f"the samples of '{self.path}' are damaged ({reason}); `maskov resume "
                f"{self.path}` draws them again."
            ) from error

    def traces(self) -> Traces:
        """Read the traces."""
        folder = self.path / "traces"
        found: Traces = {}
        for name in TRACES:
            absent = name in PLACES and not (folder / f"{name}.npy").exists()
            if absent or trace_shape(self.manifest, name) is None:
                continue
            found[name] = np.array(self._read_trace(name)[: self.manifest.epochs])
        return found

    def _read_trace(self, name: str) -> np.memmap[Any, np.dtype[Any]]:
        """Map a trace, or say why it cannot be read and how to make it again."""
        check_regular(self.path / "traces" / f"{name}.npy")
        with self._readable(name):
            return self._map(name)

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Say why a trace cannot be used and how to make it again."""
        try:
            yield
        except Exception as error:  # a damaged header fails in a dozen ways
            path = self.path / "traces" / f"{name}.npy"
            first = str(error).partition("\n")[0]
            remove = f"remove {name}.npy, and " if path.exists() else ""
            raise RunError(
                f"the traces of '{self.path}' cannot be read: {first}; {remove}`maskov resume "
                f"{self.path}` makes it again."
            ) from error

    def _map(self, name: str) -> np.memmap[Any, np.dtype[Any]]:
        """Map a trace of this run."""
        shape = trace_shape(self.manifest, name)
        if shape is None:
            raise ValueError(f"{name}.npy is not of this run")
        return map_array(self.path / "traces" / f"{name}.npy", shape, TRACES[name])

    def _start(self, name: str) -> int:
        """Return where the rows of a trace begin in its file."""
        if name not in self._starts:
            self._starts[name] = int(self._read_trace(name).offset)
        return self._starts[name]

    def traced(self) -> frozenset[str]:
        """Return the names of the traces there are."""
        folder = self.path / "traces"
        return frozenset(
            name
            for name in TRACES
            if trace_shape(self.manifest, name) and (folder / f"{name}.npy").exists()
        )

    @property
    def _cells(self) -> int:
        return self.manifest.schedule.epochs * self.manifest.chains


def _told(misfits: dict[str, list[int]]) -> str:
    """Say which traces do not fit, and in which epochs."""
    parts = [f"traces/{name}.npy in {in_words(epochs)}" for name, epochs in misfits.items()]
    return f"{'; '.join(parts)} {'does' if len(parts) == 1 else 'do'} not fit the run"


def _read_manifest(folder: Path) -> Manifest:
    try:
        data = json.loads(read_text(folder / "manifest.json"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"'{folder}' is no run folder: it has no readable manifest.") from error
    return read_manifest(data, str(folder))


def _hash_of(path: Path, size: int) -> tuple[Any, int | None]:
    """Return the hash and the lines of a file's first bytes; no lines if it is shorter."""
    hash_, lines = hashlib.sha256(), 0
    try:
        with open_regular(path) as file:
            while size and (part := file.read(min(size, 2**20))):
                size -= len(part)
                hash_.update(part)
                lines += part.count(b"\n")
    except OSError:
        pass
    return hash_, None if size else lines


def _is_leftover(path: Path) -> bool:
    """Tell an empty folder, or what a creation left that was cut off before its manifest.

    Names alone do not prove that files are ours: nothing of a user's may look like a leftover.
    """
    if not path.is_dir() or not {file.name for file in path.iterdir()} <= _UNFINISHED:
        return False
    samples, traces, saved = (path / name for name in ("samples.jsonl", "traces", "checkpoints"))
    if samples.exists() and (not samples.is_file() or samples.stat().st_size):
        return False
    if saved.exists() and (not saved.is_dir() or any(saved.iterdir())):
        return False
    ours = {f"{name}.npy" for name in TRACES}
    return not traces.exists() or (
        traces.is_dir() and {file.name for file in traces.iterdir()} <= ours
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
