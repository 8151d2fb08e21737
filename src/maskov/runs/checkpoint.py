"""A checkpoint: the state of a group of chains, exactly, in one file that proves itself whole.

The masked passes that a chain keeps are saved with it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that goes on must be the run
that was never stopped, to the byte. The same bytes carry a group to a worker and back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from maskov.execution.buffers import Buffers
from maskov.execution.span_buffers import SpanBuffers
from maskov.runs.checkpoint_header import read_body, read_header, seal
from maskov.runs.files import write_atomically
from maskov.runs.group import GroupState
from maskov.runs.validation import GroupShape
from maskov.types import Chains, PartValues, Sites, Tensor

_KEPT = 2  # the newest and the one before it
_HASH_LETTERS = 64
_BUFFERS = [{field.name for field in fields(kind)} for kind in (Buffers, SpanBuffers)]
_SCALARS = (
    "epoch", "end", "begun", "other_passes", "budget", "target",
)  # fmt: skip


@dataclass(frozen=True)
class Cursor:
    """How far the run as a whole has come.

    The samples of the first `closed` epochs are in the samples file: its first `samples_bytes`,
    whose hash is `samples_hash`.
    """

    closed: int = 0
    samples_bytes: int = 0
    samples_hash: str = ""


@dataclass(frozen=True)
class Saved:
    """A group's state, the samples it holds and how far the run had come.

    Samples of an epoch (`tokens` and `energies`) are `held` until all groups have completed it.
    """

    state: GroupState
    held: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    cursor: Cursor = Cursor()


def pack(saved: Saved, fields: dict[str, str] | None = None) -> bytes:
    """Turn a checkpoint into bytes; `fields` are the hashes of the manifest it belongs to."""
    group = saved.state
    chains = group.chains
    tensors: dict[str, Tensor] = {
        "counts": group.counts,
        "rejected": group.rejected,
    }
    tensors |= {f"chains.{name}": value for name, value in chains.tensors().items()}
    if chains.sites is not None:
        tensors |= {f"sites.{name}": value for name, value in chains.sites.tensors().items()}
    if chains.part_values is not None:
        tensors["known.values"] = chains.part_values.values
        tensors["known.energy"] = chains.part_values.energy
    tensors |= {f"buffers.{name}": value for name, value in group.buffers.items()}
    for epoch, row in saved.held.items():
        tensors |= {f"held.{epoch}.{name}": value for name, value in row.items()}
    scalars = {name: getattr(group, name) for name in _SCALARS}
    # Which positions the passes of the sites mask; 0: each alone.
    scalars["site_groups"] = 0 if chains.sites is None else chains.sites.groups or 0
    metadata = {
        "group": json.dumps(scalars),
        # The tensors come back in another order, and the last energy is that of the target.
        "cursor": json.dumps(vars(saved.cursor)),
        "fields": json.dumps(fields or {}),
    }
    kept = {key: value.contiguous().cpu() for key, value in tensors.items()}
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
    scalars, cursor = json.loads(metadata["group"]), json.loads(metadata["cursor"])
    kinds = {name: bool if name == "begun" else int for name in _SCALARS}
    kinds["site_groups"] = int
    if any(type(scalars[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("no checkpoint: its numbers are of another kind")
    held: dict[int, dict[str, Tensor]] = {}
    for key, value in _under("held.", tensors).items():
        epoch, _, name = key.partition(".")
        held.setdefault(int(epoch), {})[name] = value
    buffers, sites = _under("buffers.", tensors), _under("sites.", tensors)
    known = _under("known.", tensors)
    if buffers and buffers.keys() not in _BUFFERS:
        raise ValueError("no checkpoint: its buffers are not whole")
    chains = Chains(
        **_under("chains.", tensors),
        sites=Sites(**sites, groups=max(scalars["site_groups"], 0) or None) if sites else None,
        # Which energy they are of, the kernel tells (`GroupState.target`).
        part_values=PartValues(None, **known) if known else None,
    )
    state = GroupState(
        chains,
        tensors["counts"],
        tensors["rejected"],
        **{name: scalars[name] for name in _SCALARS},
        buffers=buffers,
    )
    return Saved(state, held, _cursor_of(cursor))


def _cursor_of(numbers: dict[str, Any]) -> Cursor:
    hash_ = numbers["samples_hash"]
    counts = [value for name, value in numbers.items() if name != "samples_hash"]
    if any(type(value) is not int or value.bit_length() > 63 for value in counts):
        raise ValueError("no checkpoint: its numbers are of another kind")
    if not isinstance(hash_, str) or len(hash_) > _HASH_LETTERS:
        raise ValueError("no checkpoint: it has no hash of the samples")
    return Cursor(**numbers)


def save(folder: Path, group: int, saved: Saved, fields: dict[str, str]) -> None:
    """Write the newest checkpoint of a group and drop those no longer needed."""
    body = pack(saved, fields)
    older = _files(folder, group)
    serial = _serial(older[-1]) + 1 if older else 0
    path = folder / f"{group:05d}-{serial:08d}.checkpoint"
    write_atomically(path, seal(body), within=folder.parent)
    for file in older[: 1 - _KEPT]:
        file.unlink(missing_ok=True)


def load(folder: Path, group: int, shape: GroupShape) -> tuple[Saved | None, list[Path]]:
    """Return the newest whole checkpoint of a group, if any, and the damaged ones passed over.

    One of another shape is damaged, too.
    """
    damaged: list[Path] = []
    for file in reversed(_files(folder, group)):
        saved = _read(file, shape)
        if saved is not None:
            return saved, damaged
        damaged.append(file)
    return None, damaged


def cursor(folder: Path) -> Cursor:
    """Return how far the run has come, by the checkpoint that knows most."""
    groups = {file.name.partition("-")[0] for file in folder.glob("*-*.checkpoint")}
    known = [Cursor()]
    for group in groups:
        for file in reversed(_files(folder, int(group)) if group.isdecimal() else []):
            found = _read_cursor(file)
            if found is not None:
                known.append(found)
                break
    return max(known, key=lambda one: one.closed)


def changed_field(folder: Path, fields: dict[str, str]) -> str | None:
    """Name a field of the manifest that is not what it was when a checkpoint was written."""
    for file in sorted(folder.glob("*-*.checkpoint")):
        header = read_header(file)
        before = {} if header is None else header.metadata["fields"]
        if isinstance(before, dict) and before:
            for name in sorted(before.keys() | fields.keys()):
                if before.get(name) != fields.get(name):
                    return name
    return None


def _read_cursor(file: Path) -> Cursor | None:
    header = read_header(file)
    try:
        return None if header is None else _cursor_of(header.metadata["cursor"])
    except (ValueError, KeyError, TypeError, AttributeError):
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


def _read(file: Path, shape: GroupShape) -> Saved | None:
    header = read_header(file)
    # Only what is of the right size is read at all.
    body = read_body(file) if header is not None and shape.takes(header.sizes) else None
    if body is None:
        return None
    try:
        saved = unpack(body)
    except ValueError:
        return None
    return saved if shape.fits(saved.state) else None


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}
