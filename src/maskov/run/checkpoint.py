"""A checkpoint: the whole state of the chains, exactly, in one file that proves itself whole.

The masked passes that a chain keeps are saved with it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that goes on must be the run
that was never stopped, to the byte.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from maskov.run.files import write_atomically
from maskov.types import ChainState, Sites, Tensor

_MAGIC = b"maskov checkpoint 1\n"
_KEPT = 2  # the newest and the one before it
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes")
_STATE = ("chain", "tokens", "lengths", "free", "step", "rank", "confidence")
_SITES = ("hidden", "logit", "log_normaliser")


@dataclass(frozen=True)
class Progress:
    """Where a run stands: about to do step `number` of `epoch`, with this epoch's counts so far.

    `other_passes` are those outside steps (starts, first energies, traces); `samples_bytes` is
    how much of the samples file belongs to finished epochs.
    """

    state: ChainState
    epoch: int
    number: int
    counts: dict[str, Tensor]
    other_passes: int
    samples_bytes: int
    budget: int

    @classmethod
    def beginning(cls, state: ChainState, other_passes: int, budget: int) -> Progress:
        """Return the progress of a run whose chains have just been filled."""
        counts = {name: torch.zeros_like(state.chain) for name in COUNTS}
        return cls(state, 0, 0, counts, other_passes, 0, budget)


def save(folder: Path, progress: Progress) -> None:
    """Write the newest checkpoint and drop those no longer needed."""
    state = progress.state
    tensors = {f"state.{name}": getattr(state, name) for name in _STATE}
    if state.sites is not None:
        tensors |= {f"sites.{name}": getattr(state.sites, name) for name in _SITES}
    if state.energy is not None:
        tensors["state.energy"] = state.energy
    tensors |= {f"counts.{name}": progress.counts[name] for name in COUNTS}
    scalars = ("epoch", "number", "other_passes", "samples_bytes", "budget")
    metadata = {"progress": json.dumps({name: getattr(progress, name) for name in scalars})}
    body = to_bytes({key: value.contiguous().cpu() for key, value in tensors.items()}, metadata)
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
    tensors = {key: value.to(device) for key, value in from_bytes(body).items()}
    size = int.from_bytes(body[:8], "little")
    header: dict[str, Any] = json.loads(body[8 : 8 + size])
    scalars: dict[str, int] = json.loads(header["__metadata__"]["progress"])
    sites = None
    if "sites.hidden" in tensors:
        sites = Sites(**{name: tensors[f"sites.{name}"] for name in _SITES})
    own: dict[str, Any] = {name: tensors[f"state.{name}"] for name in _STATE}
    state = ChainState(**own, sites=sites, energy=tensors.get("state.energy"))
    counts = {name: tensors[f"counts.{name}"] for name in COUNTS}
    return Progress(state=state, counts=counts, **scalars)
