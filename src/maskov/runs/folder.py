"""A run folder: where results outlive the process, whatever ends it.

It holds

    manifest.json     what was asked for, with the full signature
    samples.jsonl     one sample a line: a view of the arrays
    traces/*.npy      one array per quantity, epochs × chains; of small runs also the tokens and
                      rejections at each position, and of replicas what happened to each; of
                      others the tokens of the epochs with samples
    tokens.json       the texts of the tokens in the traces, by number
    checksums.npy     of the rows of the arrays, and of the samples of each epoch
    checkpoints/      the newest state of each group of chains and the one before it
    lock              held while a process works here
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from maskov.config import Manifest, field_hashes, read_manifest, to_json
from maskov.errors import RunError
from maskov.runs import checkpoint, checksums
from maskov.runs.checkpoint import GroupShape
from maskov.runs.checksums import Checksums, in_words
from maskov.runs.files import (
    MOST_BYTES,
    MOST_LINE,
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
from maskov.runs.group import PLACES, GroupState
from maskov.runs.sample import Sample
from maskov.runs.store import ARRAYS, Store, array_shape, empty_arrays
from maskov.types import Traces

_UNFINISHED = {"lock", "traces", "checkpoints", "samples.jsonl", "manifest.json.tmp"}


class RunFolder(Store):
    """Results on disk."""

    durable = True

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.path = path
        # Files with something that a loss of power would lose.
        self._unsynced: set[Path] = set()
        # Groups whose rows fit, by reading them or having written them: these are not read again.
        self._fitting: set[int] = set()
        # Where the rows of an array begin, and where the samples end.
        self._starts: dict[str, int] = {}
        self._end = 0

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
                for name, array in empty_arrays(manifest):
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
        for name in ARRAYS:
            if (self.path / "traces" / f"{name}.npy").exists():
                self.array(name)

    def prepare(self) -> None:
        """Put back what a run needs to go on, once nothing speaks against it."""
        with explained(self.path):
            # Without checkpoints a run starts from its beginning.
            (self.path / "checkpoints").mkdir(exist_ok=True)
            (self.path / "traces").mkdir(exist_ok=True)
            for name, array in empty_arrays(self.manifest):
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

    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Keep what the chains from `first` on came to in an epoch."""
        written: dict[str, bytes] = {}
        with explained(self.path):
            for name, row, rows in self._placed(epoch, values):
                path = self.path / "traces" / f"{name}.npy"
                if name in PLACES and not path.exists():
                    continue
                content = np.ascontiguousarray(rows, dtype=ARRAYS[name]).tobytes()
                written[name] = content
                each, start = len(content) // len(rows), self._start(name)
                shape = array_shape(self.manifest, name) or (0, 0)
                self._unsynced.add(path)
                with open_to_write(path, self.path) as file:
                    with self._readable(name):
                        check_size(path, file, start + shape[0] * shape[1] * each)
                    file.seek(start + (row * shape[1] + first) * each)
                    file.write(content)
            self._checksums.write(first, epoch, written)
            self._unsynced.add(self._checksums.path)

    def write_samples(self, epoch: int, samples: Iterable[Sample]) -> None:
        """Append the samples of an epoch, whatever was there."""
        path = self.path / "samples.jsonl"
        content = b"".join(sample.to_json().encode() + b"\n" for sample in samples)
        with explained(self.path):
            with open_to_write(path, self.path, os.O_CREAT) as file:
                file.truncate(self._end)
                file.seek(self._end)
                file.write(content)
            self._end += len(content)
            self._checksums.write(0, epoch, {"samples": content})
            self._unsynced |= {path, self._checksums.path}

    def restore_samples(self, closed: int) -> Sequence[int]:
        """Cut what follows the samples of so many epochs; return those to be written again."""
        end, path = self._samples_end(closed), self.path / "samples.jsonl"
        self._end = end or 0
        with explained(self.path), open_to_write(path, self.path, os.O_CREAT) as file:
            file.truncate(self._end)
        if end is not None:
            return ()
        self._tell("samples.jsonl was damaged; it is written again", path)
        return self.sampled(closed)

    def _samples_end(self, closed: int) -> int | None:
        """Return where the samples of so many epochs end; None if they are not what they were."""
        end = 0
        try:
            with open_regular(self.path / "samples.jsonl") as file:
                for epoch in self.sampled(closed):
                    lines: list[bytes] = []
                    while len(lines) < self.manifest.chains:
                        lines.append(file.readline(MOST_LINE))
                        if not lines[-1].endswith(b"\n"):
                            return None
                    if not self._checksums.fits("samples", epoch, 0, b"".join(lines)):
                        return None
                    end += sum(map(len, lines))
        except FileNotFoundError:
            return None if self.sampled(closed) else 0
        return end

    def save(self, group: int, state: GroupState) -> None:
        """Write a checkpoint, once everything that it relies on is on the disk."""
        with explained(self.path):
            for path in sorted(self._unsynced):
                sync_file(path)
            self._unsynced.clear()
            # Whoever removed it meanwhile loses no more than what was in it.
            (self.path / "checkpoints").mkdir(exist_ok=True)
            checkpoint.save(self.path / "checkpoints", group, state, self._fields)
            self._fitting.add(group)

    def load(self, group: int, shape: GroupShape) -> GroupState | None:
        """Read the newest whole checkpoint of a group whose rows are those that were written."""
        state, damaged = checkpoint.load(self.path / "checkpoints", group, shape)
        if damaged:
            after = "go on from an earlier one" if state else "start again from their beginning"
            names = ", ".join(file.name for file in damaged)
            self._tell(f"{names} was damaged; its chains {after}", *damaged)
        if state is None or group in self._fitting:
            return state
        misfits = self._misfits(self._mapped, group, state.epoch)
        if not misfits:
            self._fitting.add(group)
            return state
        chains = self._checksums.groups[group]
        which = f"chains {chains.start}-{chains.stop - 1}; these start again from their beginning"
        if len(chains) == 1:
            which = f"chain {chains.start}; it starts again from its beginning"
        saved = sorted(self.path.glob(f"checkpoints/{group:05d}-*"))
        traces = [self.path / "traces" / f"{name}.npy" for name in misfits]
        self._tell(f"{_told(misfits)} of the {which}", *saved, *traces)
        return None

    def _tell(self, note: str, *files: Path) -> None:
        if note not in self.recovered:
            self.recovered.append(note)
            self.damaged += [file for file in files if file not in self.damaged]

    @cached_property
    def _checksums(self) -> Checksums:
        return Checksums(self.path, self.manifest)

    def _misfits(self, arrays: Traces, group: int, epochs: int) -> dict[str, list[int]]:
        """Return which arrays do not have what a group came to in its first epochs, and where."""
        found = self._checksums.misfits(arrays, group, epochs)
        chains, steps = self._checksums.groups[group], arrays.get("steps")
        if steps is not None and not (steps[:epochs, chains.start : chains.stop] > 0).all():
            found.setdefault("steps", list(range(epochs)))
        return found

    @property
    def _mapped(self) -> Traces:
        """The arrays that can be read, each on disk until it is looked at."""
        found: Traces = {}
        for name in ARRAYS:
            with suppress(Exception):  # a damaged header fails in a dozen ways
                found[name] = self._map(name)
        return found

    @property
    def _epochs(self) -> list[int]:
        """The epoch that each group is in, by its newest checkpoint."""
        groups, most = range(len(self._checksums.groups)), self.manifest.schedule.epochs
        found = (checkpoint.epoch_of(self.path / "checkpoints", group) for group in groups)
        return [min(max(epoch, 0), most) for epoch in found]

    @property
    def closed(self) -> int:
        """The epochs that all groups have completed, by their newest checkpoints."""
        return min(self._epochs)

    @property
    def finished(self) -> bool:
        """Whether every epoch was run and every sample kept, and all are as they were written."""
        epochs = self.manifest.epochs
        if self.closed < epochs or self.damage():
            return False
        return self._samples_end(epochs) is not None

    def damage(self) -> dict[str, list[int]]:
        """Return the arrays that do not fit the run, and in which epochs before its checkpoints."""
        found: dict[str, list[int]] = {}
        arrays = self._mapped
        for group, epochs in enumerate(self._epochs):
            for name, wrong in self._misfits(arrays, group, epochs).items():
                found[name] = sorted({*found.get(name, ()), *wrong})
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

    def note(self, **found: Any) -> None:
        """Add to the manifest."""
        super().note(**found)
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
        most = len(self.sampled(self.manifest.epochs)) * self.manifest.chains
        try:
            lines = read_lines(self.path / "samples.jsonl", most)
            return [Sample(**json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
            raise RunError(
                f"the samples of '{self.path}' are damaged ({reason}); `maskov resume "
                f"{self.path}` draws them again."
            ) from error

    def traces(self) -> Traces:
        """Read the traces."""
        return {name: np.array(trace) for name, trace in super().traces().items()}

    def array(self, name: str) -> np.memmap[Any, np.dtype[Any]]:
        """Map an array, or say why it cannot be read and how to make it again."""
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
        shape = array_shape(self.manifest, name)
        if shape is None:
            raise ValueError(f"{name}.npy is not of this run")
        return map_array(self.path / "traces" / f"{name}.npy", shape, ARRAYS[name])

    def _start(self, name: str) -> int:
        """Return where the rows of a trace begin in its file."""
        if name not in self._starts:
            self._starts[name] = int(self.array(name).offset)
        return self._starts[name]

    def traced(self) -> list[str]:
        """Return the names of the traces there are; older runs have none of positions."""
        there = {name for name in PLACES if (self.path / "traces" / f"{name}.npy").exists()}
        return [name for name in super().traced() if name not in PLACES or name in there]


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
    ours = {f"{name}.npy" for name in ARRAYS}
    return not traces.exists() or (
        traces.is_dir() and {file.name for file in traces.iterdir()} <= ours
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
