"""A checkpoint: the whole state of the chains, exactly, in one file that proves itself whole.

The masked passes that a chain keeps are saved with it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that goes on must be the run
that was never stopped, to the byte.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from maskov.run.files import write_atomically
from maskov.run.progress import Progress
from maskov.types import ChainState, Sites, Tensor

_MAGIC = b"maskov checkpoint 3\n"
_KEPT = 2  # the newest and the one before it
_STATE = ("chain", "source", "tokens", "lengths", "free", "step", "rank", "confidence", "energy")
_SITES = tuple(field.name for field in fields(Sites))
_SCALARS = (
    "epoch", "group", "number", "end", "nearest", "piloted", "other_passes", "samples_bytes",
    "budget",
)  # fmt: skip


def save(folder: Path, progress: Progress) -> None:
    """Write the newest checkpoint and drop those no longer needed."""
    tensors: dict[str, Tensor | None] = {
        "counts": progress.counts,
        "rejected": progress.rejected,
        "pilot": progress.pilot,
    }
    for number, state in enumerate(progress.groups):
        tensors |= {f"group{number}.{name}": getattr(state, name) for name in _STATE}
        if state.sites is not None:
            tensors |= {f"group{number}.{name}": getattr(state.sites, name) for name in _SITES}
    tensors |= {f"flight.{name}": value for name, value in progress.flight.items()}
    tensors |= {f"row.{name}": value for name, value in progress.row.items()}
    metadata = {
        "progress": json.dumps({name: getattr(progress, name) for name in _SCALARS}),
        "groups": str(len(progress.groups)),
    }
    kept = {key: value.contiguous().cpu() for key, value in tensors.items() if value is not None}
    body = to_bytes(kept, metadata)
    older = _files(folder)
    serial = int(older[-1].stem) + 1 if older else 0
    digest = hashlib.sha256(body).digest()
    write_atomically(folder / f"{serial:08d}.checkpoint", _MAGIC + digest + body)
    for file in older[: 1 - _KEPT]:
        file.unlink(missing_ok=True)


def load(folder: Path, device: torch.device) -> tuple[Progress | None, list[Path]]:
    """Return the newest whole checkpoint, if any, and the damaged ones that were passed over."""
    damaged: list[Path] = []
    for file in reversed(_files(folder)):
        progress = _read(file, device)
        if progress is not None:
            return progress, damaged
        damaged.append(file)
    return None, damaged


def _files(folder: Path) -> list[Path]:
    found = folder.glob("*.checkpoint")
    return sorted((file for file in found if file.stem.isdigit()), key=lambda file: int(file.stem))


def _read(file: Path, device: torch.device) -> Progress | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + hashlib.sha256().digest_size
    body = content[start:]
    if content[:start] != _MAGIC + hashlib.sha256(body).digest():
        return None
    tensors = from_bytes(body)
    size = int.from_bytes(body[:8], "little")
    header: dict[str, Any] = json.loads(body[8 : 8 + size])
    scalars: dict[str, int] = json.loads(header["__metadata__"]["progress"])
    count = int(header["__metadata__"]["groups"])
    # With several groups only the one in flight is on the device.
    home = device if count == 1 else torch.device("cpu")
    groups = tuple(_state(_under(f"group{number}.", tensors), home) for number in range(count))
    flight = {name: value.to(device) for name, value in _under("flight.", tensors).items()}
    row = _under("row.", tensors)
    counts, rejected = (tensors[name].to(device) for name in ("counts", "rejected"))
    return Progress(groups, counts, rejected, tensors["pilot"], **scalars, flight=flight, row=row)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}


def _state(tensors: dict[str, Tensor], device: torch.device) -> ChainState:
    moved = {name: value.to(device) for name, value in tensors.items()}
    sites = Sites(**{name: moved.pop(name) for name in _SITES}) if "hidden" in moved else None
    return ChainState(**moved, sites=sites)
