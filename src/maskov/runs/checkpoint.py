"""A checkpoint: the state of a group of chains, exactly, in one file that proves itself whole.

The masked passes that a chain keeps are saved with it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that goes on must be the run
that was never stopped, to the byte. The same bytes carry a group to a worker and back.
"""

from __future__ import annotations

import json
from dataclasses import fields
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
_BUFFERS = [{field.name for field in fields(kind)} for kind in (Buffers, SpanBuffers)]
_SCALARS = (
    "epoch", "end", "begun", "other_passes", "budget", "target",
)  # fmt: skip


def pack(group: GroupState, fields: dict[str, str] | None = None) -> bytes:
    """Turn a group into bytes; `fields` are the hashes of the manifest it belongs to."""
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
    scalars = {name: getattr(group, name) for name in _SCALARS}
    # Which positions the passes of the sites mask; 0: each alone.
    scalars["site_groups"] = 0 if chains.sites is None else chains.sites.groups or 0
    metadata = {
        "group": json.dumps(scalars),
        "fields": json.dumps(fields or {}),
    }
    kept = {key: value.contiguous().cpu() for key, value in tensors.items()}
    return to_bytes(kept, metadata)


def unpack(body: bytes) -> GroupState:
    """Turn bytes into a group; bytes that are none are a `ValueError`."""
    try:
        return _unpacked(body)
    except (SafetensorError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"no checkpoint: {error}") from error


def _unpacked(body: bytes) -> GroupState:
    tensors = from_bytes(body)
    size = int.from_bytes(body[:8], "little")
    metadata: dict[str, Any] = json.loads(body[8 : 8 + size])["__metadata__"]
    scalars = json.loads(metadata["group"])
    kinds = {name: bool if name == "begun" else int for name in _SCALARS}
    kinds["site_groups"] = int
    if any(type(scalars[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("no checkpoint: its numbers are of another kind")
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
    return GroupState(
        chains,
        tensors["counts"],
        tensors["rejected"],
        **{name: scalars[name] for name in _SCALARS},
        buffers=buffers,
    )


def save(folder: Path, group: int, state: GroupState, fields: dict[str, str]) -> None:
    """Write the newest checkpoint of a group and drop those no longer needed."""
    body = pack(state, fields)
    older = _files(folder, group)
    serial = _serial(older[-1]) + 1 if older else 0
    path = folder / f"{group:05d}-{serial:08d}.checkpoint"
    write_atomically(path, seal(body), within=folder.parent)
    for file in older[: 1 - _KEPT]:
        file.unlink(missing_ok=True)


def load(folder: Path, group: int, shape: GroupShape) -> tuple[GroupState | None, list[Path]]:
    """Return the newest whole checkpoint of a group, if any, and the damaged ones passed over.

    One of another shape is damaged, too.
    """
    damaged: list[Path] = []
    for file in reversed(_files(folder, group)):
        state = _read(file, shape)
        if state is not None:
            return state, damaged
        damaged.append(file)
    return None, damaged


def epoch_of(folder: Path, group: int) -> int:
    """Return the epoch that a group is in, by its newest checkpoint; nothing else of it is read."""
    for file in reversed(_files(folder, group)):
        header = read_header(file)
        if header is not None and type(header.metadata["group"].get("epoch")) is int:
            return int(header.metadata["group"]["epoch"])
    return 0


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


def _files(folder: Path, group: int) -> list[Path]:
    found = [
        file
        for file in folder.glob(f"{group:05d}-*.checkpoint")
        if file.stem.partition("-")[2].isdecimal()
    ]
    return sorted(found, key=_serial)


def _serial(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def _read(file: Path, shape: GroupShape) -> GroupState | None:
    header = read_header(file)
    # Only what is of the right size is read at all.
    body = read_body(file) if header is not None and shape.takes(header.sizes) else None
    if body is None:
        return None
    try:
        state = unpack(body)
    except ValueError:
        return None
    return state if shape.fits(state) else None


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}
