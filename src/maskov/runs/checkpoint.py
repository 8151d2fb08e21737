"""A checkpoint: the state of a group of chains, exactly, in one file that proves itself whole.

The masked passes that a chain keeps are saved with it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that goes on must be the run
that was never stopped, to the byte. The same bytes carry a group to a worker and back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from maskov.execution.buffers import Buffers
from maskov.runs.checkpoint_header import read_body, read_header, seal
from maskov.runs.files import write_atomically
from maskov.runs.group import UNDECIDED, Progress
from maskov.runs.validation import Mould
from maskov.types import ChainState, Sites, Tensor

_KEPT = 2  # the newest and the one before it
_STATE = ("chain", "source", "tokens", "lengths", "free", "step", "rank", "confidence", "energy")
_SITES = tuple(field.name for field in fields(Sites))
_FLIGHT = {field.name for field in fields(Buffers)}
_SCALARS = (
    "epoch", "number", "end", "begun", "piloted", "nearest", "other_passes", "budget",
)  # fmt: skip


@dataclass(frozen=True)
class Head:
    """How far the run as a whole has come.

    The samples of the first `closed` epochs are in the samples file, its first `samples_bytes`;
    `nearest` is the choice of the pilot.
    """

    closed: int = 0
    samples_bytes: int = 0
    nearest: int = UNDECIDED


@dataclass(frozen=True)
class Saved:
    """A group's progress, the samples it holds and how far the run had come.

    Samples of an epoch (`tokens` and `energies`) are `held` until all groups have completed it.
    """

    progress: Progress
    held: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    head: Head = Head()


def pack(saved: Saved) -> bytes:
    """Turn a checkpoint into bytes."""
    progress = saved.progress
    state = progress.state
    tensors: dict[str, Tensor | None] = {
        "counts": progress.counts,
        "rejected": progress.rejected,
        "pilot": progress.pilot,
    }
    tensors |= {f"state.{name}": getattr(state, name) for name in _STATE}
    if state.sites is not None:
        tensors |= {f"state.{name}": getattr(state.sites, name) for name in _SITES}
    tensors |= {f"flight.{name}": value for name, value in progress.flight.items()}
    for epoch, row in saved.held.items():
        tensors |= {f"held.{epoch}.{name}": value for name, value in row.items()}
    scalars = {name: getattr(progress, name) for name in _SCALARS}
    metadata = {"progress": json.dumps(scalars), "head": json.dumps(vars(saved.head))}
    kept = {key: value.contiguous().cpu() for key, value in tensors.items() if value is not None}
    return to_bytes(kept, metadata)


def unpack(body: bytes) -> Saved:
    """Turn bytes into a checkpoint; bytes that are none are a `ValueError`."""
    try:
        return _unpacked(body)
    except (SafetensorError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"no checkpoint: {error}") from error


def _unpacked(body: bytes) -> Saved:
    tensors = from_bytes(body)
    size = int.from_bytes(body[:8], "little")
    metadata: dict[str, Any] = json.loads(body[8 : 8 + size])["__metadata__"]
    scalars, head = json.loads(metadata["progress"]), json.loads(metadata["head"])
    kinds = {name: bool if name in ("begun", "piloted") else int for name in _SCALARS}
    if any(type(scalars[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("no checkpoint: its numbers are of another kind")
    held: dict[int, dict[str, Tensor]] = {}
    for key, value in _under("held.", tensors).items():
        epoch, _, name = key.partition(".")
        held.setdefault(int(epoch), {})[name] = value
    flight = _under("flight.", tensors)
    if flight and flight.keys() != _FLIGHT:
        raise ValueError("no checkpoint: its flight is not whole")
    progress = Progress(
        _state(_under("state.", tensors)),
        tensors["counts"],
        tensors["rejected"],
        tensors["pilot"],
        **{name: scalars[name] for name in _SCALARS},
        flight=flight,
    )
    return Saved(progress, held, _head_of(head))


def _head_of(numbers: dict[str, Any]) -> Head:
    if any(type(value) is not int or value.bit_length() > 63 for value in numbers.values()):
        raise ValueError("no checkpoint: its numbers are of another kind")
    return Head(**numbers)


def save(folder: Path, group: int, saved: Saved) -> None:
    """Write the newest checkpoint of a group and drop those no longer needed."""
    body = pack(saved)
    older = _files(folder, group)
    serial = _serial(older[-1]) + 1 if older else 0
    path = folder / f"{group:05d}-{serial:08d}.checkpoint"
    write_atomically(path, seal(body))
    for file in older[: 1 - _KEPT]:
        file.unlink(missing_ok=True)


def load(folder: Path, group: int, mould: Mould) -> tuple[Saved | None, list[Path]]:
    """Return the newest whole checkpoint of a group, if any, and the damaged ones passed over.

    One that does not fit the mould is damaged, too.
    """
    damaged: list[Path] = []
    for file in reversed(_files(folder, group)):
        saved = _read(file, mould)
        if saved is not None:
            return saved, damaged
        damaged.append(file)
    return None, damaged


def head(folder: Path) -> Head:
    """Return how far the run has come, by the checkpoint that knows most."""
    groups = {file.name.partition("-")[0] for file in folder.glob("*-*.checkpoint")}
    known = [Head()]
    for group in groups:
        for file in reversed(_files(folder, int(group)) if group.isdecimal() else []):
            found = _read_head(file)
            if found is not None:
                known.append(found)
                break
    best = max(known, key=lambda one: one.closed)
    return replace(best, nearest=max(one.nearest for one in known))


def _read_head(file: Path) -> Head | None:
    header = read_header(file)
    try:
        return None if header is None else _head_of(header.metadata["head"])
    except (ValueError, TypeError, AttributeError):
        return None


def _files(folder: Path, group: int) -> list[Path]:
    found = [
        file
        for file in folder.glob(f"{group:05d}-*.checkpoint")
        if file.stem.partition("-")[2].isdecimal()
    ]
    return sorted(found, key=_serial)


def _serial(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def _read(file: Path, mould: Mould) -> Saved | None:
    header = read_header(file)
    # Only what is of the right size is read at all.
    body = read_body(file) if header is not None and mould.takes(header.sizes) else None
    if body is None:
        return None
    try:
        saved = unpack(body)
    except ValueError:
        return None
    return saved if mould.fits(saved.progress, saved.held) else None


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}


def _state(tensors: dict[str, Tensor]) -> ChainState:
    found = dict(tensors)
    sites = Sites(**{name: found.pop(name) for name in _SITES}) if "hidden" in found else None
    return ChainState(**found, sites=sites)
