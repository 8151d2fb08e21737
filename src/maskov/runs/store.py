"""What a run comes to: named arrays and samples, in memory or in a run folder.

A row of an array has its place, so that writing it twice does no harm. The arrays hold everything;
samples are a view of them. A run folder outlives the process, whatever ends it. It holds

    manifest.json     what was asked for, with the full signature
    samples.jsonl     one sample a line: a view of the arrays
    traces/*.npy      one array per quantity, epochs × chains; of small runs also the tokens and
                      rejections at each position, and of replicas what happened to each; of
                      others the tokens of the epochs with samples
    tokens.json       the texts of the tokens in the traces, by number
    checksums.npy     of the rows of the arrays, and of the samples of each epoch
    checkpoints/      the newest state of each group of chains and the one before it
    lock              held while a process works here

A checksum is of one array, epoch and group of chains; that of an epoch's samples is with the first
group. It is keyed with the signature of the run, so that the traces of another run do not fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest, field_hashes, from_json, read_manifest, to_json
from maskov.errors import InputError, RunError
from maskov.execution.buffers import COUNTS, ENERGIES
from maskov.runs.files import (
    MOST_BYTES,
    check_folder,
    check_own,
    check_size,
    explained,
    map_array,
    open_to_write,
    read_lines,
    read_text,
    sync,
    write_atomically,
    write_new,
)
from maskov.runs.state import (
    EXPERTS,
    PARTICLES,
    PLACES,
    REPLICAS,
    GroupShape,
    GroupState,
    changed_field,
    epoch_of,
    groups_of,
    kept_epochs,
    load_checkpoint,
    save_checkpoint,
)
from maskov.types import Sample, Traces

# Energies at the end of each epoch, what was counted within it, and what belongs to positions, to
# replicas and to experts.
TRACES: dict[str, type[np.generic]] = {
    **dict.fromkeys(ENERGIES, np.float64),
    **dict.fromkeys(COUNTS, np.int64),
    "lengths": np.int32,
    "tokens": np.int32,
    "rejected": np.bool_,
    "rung_energy": np.float64,
    "rung_replica": np.int8,
    "swap_tested": np.bool_,
    "swap_accepted": np.bool_,
    "sizes": np.int32,
    "expert_energy": np.float64,
    "expert_calls": np.int64,
    "log_weight": np.float64,
    "ancestor": np.int32,
}
# Of runs too large to trace their tokens, those of the epochs with samples.
ARRAYS: dict[str, type[np.generic]] = TRACES | {"kept": np.int32}
# What has a checksum, and what has a file of its own.
_SUMMED = (*ARRAYS, "samples")
_KINDS: dict[str, type[np.generic]] = ARRAYS | {"checksums": np.uint64}
# Traces with more than one entry for each chain.
_WIDE = (*PLACES, *REPLICAS, *EXPERTS, "sizes")
# Epochs × chains × positions up to which what happens at each position is traced.
_MOST_PLACES = 2**24
_FOLDERS = ("traces", "checkpoints")


def _file(name: str) -> str:
    """Return where an array is in a run folder."""
    return "checksums.npy" if name == "checksums" else f"traces/{name}.npy"


class Store:
    """The results of a run: without a `path` they end with the process."""

    def __init__(self, manifest: Manifest, path: Path | None = None) -> None:
        self.manifest = manifest
        self.groups = groups_of(manifest)
        # The files that were damaged, and what became of it, in sentences.
        self.damaged: list[Path] = []
        self.recovered: list[str] = []
        self._path = path
        self._samples: list[Sample] = []
        self._spellings: dict[int, str] = {}
        # Files with something that a loss of power would lose.
        self._unsynced: set[Path] = set()
        # Groups whose rows fit, by reading them or having written them: these are not read again.
        self._fitting: set[int] = set()
        # Where the rows of an array begin in its file, and where the samples end.
        self._starts: dict[str, int] = {}
        self._end = 0

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
            if not path.exists():
                return
            if _is_leftover(path):
                check_folder(path)
            elif (path / "manifest.json").is_file():
                raise RunError(
                    f"'{path}' already holds a run; go on with `maskov resume {path}` or give "
                    "another --out."
                )
            else:
                raise RunError(f"'{path}' already holds something else; give another --out.")

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> Store:
        """Fill an empty folder; if that fails, it is empty again."""
        cls.check_free(path)
        store = cls(manifest, path)
        try:
            store.prepare(anew=True)
            with explained(path):
                open_to_write(path / "samples.jsonl", os.O_CREAT).close()
                sync(path)
                sync(path.parent)
                # Last: a folder is a run once it has its manifest.
                store._write_manifest()
        except RunError:
            store.discard()
            raise
        return store

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open an existing run folder."""
        try:
            text = read_text(path / "manifest.json")
        except (OSError, ValueError) as error:
            raise RunError(f"'{path}' is not a run folder: it has no readable manifest.") from error
        return cls(read_manifest(text, str(path)), path)

    def discard(self) -> None:
        """Remove what `create` made, the manifest first: half of it is not a run."""
        for name in ("manifest.json", "manifest.json.tmp", "samples.jsonl", "checksums.npy"):
            (self.path / name).unlink(missing_ok=True)
        for name in _FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)

    def check_resumable(self) -> None:
        """Refuse to continue a run whose folder leads elsewhere or whose traces are damaged."""
        check_folder(self.path)
        saved = self.path / "checkpoints"
        if saved.exists() and not saved.is_dir():
            raise RunError(f"'{saved}' is not a folder; remove it, and the run starts again.")
        for name in ARRAYS:
            if (self.path / _file(name)).exists():
                self.array(name)

    def check_unchanged(self) -> None:
        """Refuse a manifest that is not the one that the checkpoints belong to."""
        name = changed_field(self.path / "checkpoints", self._fields)
        if name is not None:
            raise RunError(
                f"the manifest of '{self.path}' was changed after the run began: '{name}' is not "
                "what it was; put it back, or start a new run."
            )

    def prepare(self, anew: bool = False) -> None:
        """Make what a run needs to begin or to continue, and is not there, or all of it `anew`.

        What was lost does not fit its checksums: its chains start again, and that is told.
        """
        with explained(self.path):
            for name in _FOLDERS:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            there = {} if anew else self._mapped
            for name in _KINDS:
                if self._shape(name) is not None and name not in there:
                    write_new(self.path / _file(name), self._empty(name))
            sync(self.path / "traces")

    @cached_property
    def _fields(self) -> dict[str, str]:
        return field_hashes(self.manifest)

    def note(self, **found: Any) -> None:
        """Add to the manifest something that the run has found out."""
        self.manifest = replace(self.manifest, **found)
        vars(self).pop("_fields", None)
        if self.durable:
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

    def _tell(self, note: str, *files: Path) -> None:
        if note not in self.recovered:
            self.recovered.append(note)
            self.damaged += [file for file in files if file not in self.damaged]

    # Arrays.

    def _shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an array, or None if this run has none of that name.

        Only small runs have traces of positions.
        """
        manifest = self.manifest
        shape, replicas = (manifest.schedule.epochs, manifest.chains), manifest.replicas
        places = (*shape, manifest.width)
        small = prod(places) <= _MOST_PLACES
        entries = {
            **dict.fromkeys(PLACES, manifest.width if small else 0),
            **dict.fromkeys(EXPERTS, len(manifest.experts)),
            **dict.fromkeys(REPLICAS[:2], replicas if replicas > 1 else 0),
            **dict.fromkeys(REPLICAS[2:], replicas - 1),
            "sizes": manifest.regions,
        }
        if name == "checksums":
            return (shape[0], len(self.groups), len(_SUMMED))
        if name == "kept":
            return None if small else (len(kept_epochs(manifest)), *places[1:])
        if name in PARTICLES and not manifest.particles:
            return None
        if name not in entries:
            return shape
        return (*shape, entries[name]) if entries[name] else None

    def _empty(self, name: str) -> npt.NDArray[Any]:
        made = np.zeros(self._shape(name) or (), dtype=_KINDS[name])
        return np.full_like(made, np.nan) if made.dtype == np.float64 else made

    @cached_property
    def _arrays(self) -> Traces:
        return {name: self._empty(name) for name in ARRAYS if self._shape(name) is not None}

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array, to be read, or say why it cannot be and how to make it again."""
        if not self.durable:
            return self._arrays[name]
        with self._readable(name):
            return self._map(name)

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except RunError:
            raise
        except Exception as error:  # a damaged header fails in a dozen ways
            first = str(error).partition("\n")[0]
            remove = f"remove {name}.npy, and " if (self.path / _file(name)).exists() else ""
            raise RunError(
                f"the traces of '{self.path}' cannot be read: {first}; {remove}`maskov resume "
                f"{self.path}` makes it again."
            ) from error

    def _map(self, name: str) -> np.memmap[Any, np.dtype[Any]]:
        shape = self._shape(name)
        if shape is None:
            raise ValueError(f"{name}.npy is not of this run")
        return map_array(self.path / _file(name), shape, _KINDS[name])

    def _row_of(self, name: str, epoch: int) -> int | None:
        """Return the row of an epoch in an array, if it has one."""
        if name != "kept":
            return epoch
        kept = kept_epochs(self.manifest)
        return kept.index(epoch) if epoch in kept else None

    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Keep what the chains from `first` on came to in an epoch."""
        written: dict[str, bytes] = {}
        # Steps last: who reads along takes an epoch that has some for a whole one.
        for name in sorted(ARRAYS, key=lambda name: name == "steps"):
            row = self._row_of(name, epoch)
            if row is None or self._shape(name) is None:
                continue
            rows = np.ascontiguousarray(values["tokens" if name == "kept" else name], ARRAYS[name])
            if self.durable:
                written[name] = rows.tobytes()
                self._write(name, row, first, rows)
            else:
                self._arrays[name][row, first : first + len(rows)] = rows
        if self.durable:
            self._write_sums(first, epoch, written)

    def _write(self, name: str, row: int, first: int, rows: npt.NDArray[Any]) -> None:
        """Write to the file of an array, from an entry of one of its rows on."""
        path, shape = self.path / _file(name), self._shape(name) or (0, 0)
        each = rows.nbytes // len(rows)
        with explained(self.path), self._readable(name):
            if name not in self._starts:
                self._starts[name] = int(self._map(name).offset)
            if path.parent != self.path:  # which itself may be a link
                check_own(path.parent, path.parent.lstat())
            start = self._starts[name]
            with open_to_write(path) as file:
                check_size(file, start + shape[0] * shape[1] * each)
                file.seek(start + (row * shape[1] + first) * each)
                file.write(rows.tobytes())
        self._unsynced.add(path)

    def row(self, epoch: int) -> Traces:
        """Return what all chains came to in an epoch, one number each."""
        return {
            name: np.array(self.array(name)[epoch]) for name in self.traced() if name not in _WIDE
        }

    def tokens(self, epoch: int) -> npt.NDArray[Any]:
        """Return the tokens of all chains at the end of an epoch with samples."""
        name = "kept" if self._shape("tokens") is None else "tokens"
        return np.array(self.array(name)[self._row_of(name, epoch)])

    def traces(self) -> Traces:
        """Return the traces, epochs × chains; without epochs after one that ended the run."""
        copied = np.array if self.durable else np.asarray
        return {name: copied(self.array(name)[: self.manifest.epochs]) for name in self.traced()}

    def traced(self) -> list[str]:
        """Return the names of the traces there are; those of positions may have been removed."""
        there = [name for name in TRACES if self._shape(name) is not None]
        if not self.durable:
            return there
        return [one for one in there if one not in PLACES or (self.path / _file(one)).exists()]

    # Checksums.

    @cached_property
    def _sums(self) -> npt.NDArray[np.uint64]:
        """The checksums; zero where there is none yet, or all if their file is damaged."""
        try:
            return np.array(self._map("checksums"))
        except RunError:
            raise
        except Exception:  # a damaged header fails in a dozen ways
            return self._empty("checksums")

    def _sum(self, name: str, epoch: int, first: int, content: bytes) -> int:
        key = hashlib.sha256(self.manifest.signature.encode()).digest()
        place = f"{name}:{epoch}:{first}:".encode()
        digest = hashlib.blake2b(place + content, digest_size=8, key=key)
        return int.from_bytes(digest.digest(), "little") or 1

    def _write_sums(self, first: int, epoch: int, written: dict[str, bytes]) -> None:
        group = first // len(self.groups[0])
        for name, content in written.items():
            place = (epoch, group, _SUMMED.index(name))
            self._sums[place] = self._sum(name, epoch, first, content)
        self._write("checksums", epoch, group, self._sums[epoch, group][None])

    def _fits(self, name: str, epoch: int, group: int, content: bytes | None) -> bool:
        """Whether this is what was written; None if nothing was."""
        known = int(self._sums[epoch, group, _SUMMED.index(name)])
        first = self.groups[group].start
        return known == (0 if content is None else self._sum(name, epoch, first, content))

    @property
    def _mapped(self) -> Traces:
        """The arrays that can be read, each on disk until it is looked at."""
        found: Traces = {}
        for name in _KINDS:
            with suppress(Exception):  # a damaged header fails in a dozen ways
                found[name] = self._map(name)
        return found

    def _misfits(self, arrays: Traces, group: int, epochs: int) -> dict[str, list[int]]:
        """Return which arrays do not have what a group came to in its first epochs, and where.

        An array that is not there fits if none was ever written.
        """
        chains = slice(self.groups[group].start, self.groups[group].stop)
        found: dict[str, list[int]] = {}
        for name in ARRAYS:
            for epoch in range(epochs):
                row = self._row_of(name, epoch) if name in arrays else None
                content = None if row is None else arrays[name][row, chains].tobytes()
                if not self._fits(name, epoch, group, content):
                    found.setdefault(name, []).append(epoch)
        if "steps" in arrays and not (arrays["steps"][:epochs, chains] > 0).all():
            found.setdefault("steps", list(range(epochs)))
        return found

    def damage_note(self) -> str | None:
        """Say which traces do not fit the run and how to make them again, if any."""
        found: dict[str, list[int]] = {}
        arrays = self._mapped if self.durable else {}
        for group, epochs in enumerate(self._epochs if self.durable else ()):
            for name, wrong in self._misfits(arrays, group, epochs).items():
                found[name] = sorted({*found.get(name, ()), *wrong})
        if not found:
            return None
        return (
            f"{_told(found)}: values were changed or lost; `maskov resume {self.path}` runs these "
            "chains again, to the same samples"
        )

    # Samples.

    def sampled(self, closed: int) -> Sequence[int]:
        """Return those of the first so many epochs that have samples."""
        kept = [epoch for epoch in kept_epochs(self.manifest) if epoch < closed]
        if not self.manifest.config.thin:
            return [epoch for epoch in kept if epoch == self.manifest.epochs - 1]
        return kept

    def write_samples(self, epoch: int, samples: Iterable[Sample]) -> None:
        """Keep the samples of an epoch, after those of the epochs before, whatever was there."""
        if not self.durable:
            self._samples += samples
            return
        content = b"".join(sample.to_json().encode() + b"\n" for sample in samples)
        self._cut_samples(self._end, content)
        self._write_sums(0, epoch, {"samples": content})

    def _cut_samples(self, end: int, content: bytes = b"") -> None:
        """Cut what follows the end of the samples, and append to them."""
        path = self.path / "samples.jsonl"
        with explained(self.path), open_to_write(path, os.O_CREAT) as file:
            file.truncate(end)
            file.seek(end)
            file.write(content)
        self._end = end + len(content)
        self._unsynced.add(path)

    def restore_samples(self, closed: int) -> Sequence[int]:
        """Cut what follows the samples of so many epochs; return those to be written again."""
        end = self._samples_end(closed) if self.durable else 0
        if self.durable:
            self._cut_samples(end or 0)
        if end is not None:
            return ()
        self._tell("samples.jsonl was damaged; it is written again", self.path / "samples.jsonl")
        return self.sampled(closed)

    def _samples_end(self, closed: int) -> int | None:
        """Return where the samples of so many epochs end; None if they are not what they were."""
        end, sampled = 0, self.sampled(closed)
        with suppress(FileNotFoundError, ValueError):
            lines = read_lines(self.path / "samples.jsonl", 2**62)
            for epoch in sampled:
                content = "".join(islice(lines, self.manifest.chains)).encode()
                if not self._fits("samples", epoch, 0, content):
                    return None
                end += len(content)
            return end
        return None if sampled else 0

    def samples(self) -> list[Sample]:
        """Return the samples kept so far."""
        if not self.durable:
            return list(self._samples)
        most = len(self.sampled(self.manifest.epochs)) * self.manifest.chains
        try:
            lines = read_lines(self.path / "samples.jsonl", most)
            return [from_json(Sample, line) for line in lines]
        except (OSError, ValueError, InputError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
            raise RunError(
                f"the samples of '{self.path}' are damaged ({reason}); `maskov resume "
                f"{self.path}` draws them again."
            ) from error

    def spell(self, texts: dict[int, str]) -> None:
        """Keep the texts of all tokens that the traces hold, in the order of their numbers."""
        self._spellings = dict(sorted(texts.items()))
        if self.durable:
            with explained(self.path):
                content = json.dumps(self._spellings)
                write_atomically(self.path / "tokens.json", content.encode())

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

    def save(self, group: int, state: GroupState) -> None:
        """Write a checkpoint, once everything that it relies on is on the disk."""
        if not self.durable:
            return
        saved = self.path / "checkpoints"
        with explained(self.path):
            for path in sorted(self._unsynced):
                sync(path)
            self._unsynced.clear()
            # Whoever removed it meanwhile loses no more than what was in it.
            saved.mkdir(exist_ok=True)
            check_own(saved, saved.lstat())
            save_checkpoint(saved, group, state, self._fields)
            self._fitting.add(group)

    def load(self, group: int, shape: GroupShape) -> GroupState | None:
        """Read the newest whole checkpoint of a group whose rows are those that were written."""
        if not self.durable:
            return None
        state, damaged = load_checkpoint(self.path / "checkpoints", group, shape)
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
        chains = self.groups[group]
        which = f"chains {chains.start}-{chains.stop - 1}; these start again from their beginning"
        if len(chains) == 1:
            which = f"chain {chains.start}; it starts again from its beginning"
        saved = sorted(self.path.glob(f"checkpoints/{group:05d}-*"))
        traces = [self.path / _file(name) for name in misfits]
        self._tell(f"{_told(misfits)} of the {which}", *saved, *traces)
        return None

    @property
    def _epochs(self) -> list[int]:
        """The epoch that each group is in, by its newest checkpoint."""
        groups, most = range(len(self.groups)), self.manifest.schedule.epochs
        found = (epoch_of(self.path / "checkpoints", group) for group in groups)
        return [min(max(epoch, 0), most) for epoch in found]

    @property
    def closed(self) -> int:
        """The epochs that all groups have completed, by their newest checkpoints."""
        return min(self._epochs)

    @property
    def finished(self) -> bool:
        """Whether every epoch was run and every sample kept, and all are as they were written."""
        epochs = self.manifest.epochs
        return not self.durable or (
            self.closed >= epochs
            and self.damage_note() is None
            and self._samples_end(epochs) is not None
        )


def _told(misfits: dict[str, list[int]]) -> str:
    """Say which traces do not fit, and in which epochs."""
    parts = [f"traces/{name}.npy in {in_words(epochs)}" for name, epochs in misfits.items()]
    return f"{'; '.join(parts)} {'does' if len(parts) == 1 else 'do'} not fit the run"


def in_words(numbers: Sequence[int]) -> str:
    """Return epochs, counted from 1, as ranges: `epochs 2-4 and 7`."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(a + 1) if a == b else f"{a + 1}-{b + 1}" for a, b in ranges]
    words = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return f"epoch{'s' * (words != str(ranges[0][0] + 1))} {words}"


def _is_leftover(path: Path) -> bool:
    """Tell an empty folder, or what a creation left that was cut off before its manifest.

    Names alone do not prove that files are ours: nothing of a user's may look like a leftover.
    """
    samples = path / "samples.jsonl"
    if not path.is_dir() or (samples.is_file() and samples.stat().st_size):
        return False
    ours = {*map(_file, _KINDS), "lock", "samples.jsonl", "manifest.json.tmp"}
    return all(
        str(file.relative_to(path)) in (_FOLDERS if file.is_dir() else ours)
        for file in path.rglob("*")
    )
