"""A checkpoint: the state of a group of chains, exactly, in one file that proves itself whole.

The file is a SHA-256, and the tensors that it is of in the format of safetensors. A hash tells
damage by chance; a forged file computes it, too, and may promise more than memory holds. So a
checkpoint is read only if its header promises the tensors of this group, and resumed only if what
no step changes is unchanged. A forged but plausible checkpoint still chooses where its chains go on
from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from maskov.execution.buffers import AHEAD, SiteBuffers, WindowBuffers
from maskov.runs.files import open_regular, write_atomically
from maskov.runs.state import GroupState, pack, sizes_of, tensors_of, unpack
from maskov.types import Chains, PartValues, PassCache, Tensor

# Bytes of the hash.
START = hashlib.sha256().digest_size
_KEPT = 2  # the newest and the one before it
_DIGITS = 8  # of the number of a checkpoint in its name
# Bytes of names and shapes; a checkpoint has about a hundred tensors.
_MOST_HEADER = 2**20
# Stages of a test, and values that are known of an energy.
_MOST_STAGES, _MOST_VALUES = 64, 2**18
_KINDS = {
    "BOOL": torch.bool,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
# What no step of these chains changes.
_FIXED = ("chain", "source", "beta", "bounds", "reference")
_FIXED_LENGTH = ("lengths", "free", "region")

# The kind and the shape of each tensor, by its name.
Sizes = dict[str, tuple[torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True)
class Header:
    """What a checkpoint says of its tensors, and what it holds beside them; not proven yet."""

    sizes: Sizes
    metadata: dict[str, dict[str, Any]]


def seal(body: bytes) -> bytes:
    """Return a checkpoint of these tensors, with the hash that proves it whole."""
    return hashlib.sha256(body).digest() + body


def read_header(path: Path) -> Header | None:
    """Return what a checkpoint says of itself; nothing if the file is of another size."""
    try:
        with open_regular(path) as file:
            file.seek(START)
            size = int.from_bytes(file.read(8), "little")
            if size > _MOST_HEADER:
                return None
            found = json.loads(file.read(size))
        texts = found.pop("__metadata__")
        metadata = {name: dict(json.loads(texts[name])) for name in ("group", "fields")}
        sizes = {str(name): _size(entry) for name, entry in found.items()}
        promised = sum(kind.itemsize * prod(shape) for kind, shape in sizes.values())
        if path.stat().st_size != START + 8 + size + promised:
            return None
        return Header(sizes, metadata)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _size(entry: dict[str, Any]) -> tuple[torch.dtype, tuple[int, ...]]:
    shape = entry["shape"]
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("no shape")
    return _KINDS[entry["dtype"]], tuple(shape)


def _read_body(path: Path) -> bytes | None:
    """Return the tensors of a checkpoint as bytes; nothing if their hash is wrong."""
    try:
        with open_regular(path) as file:
            expected, body = file.read(START), file.read()
    except OSError:
        return None
    return body if hashlib.sha256(body).digest() == expected else None


def save(folder: Path, group: int, state: GroupState, fields: dict[str, str]) -> None:
    """Write the newest checkpoint of a group and drop those no longer needed."""
    older = _files(folder, group)
    serial = int(older[-1].stem[-_DIGITS:]) + 1 if older else 0
    path = folder / f"{group:05d}-{serial:0{_DIGITS}d}.checkpoint"
    write_atomically(path, seal(pack(state, fields)))
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
        for name in sorted(before.keys() | fields.keys()) if before else ():
            # A damaged file proves nothing.
            if before.get(name) != fields.get(name) and _read_body(file) is not None:
                return name
    return None


def _files(folder: Path, group: int) -> list[Path]:
    return sorted(folder.glob(f"{group:05d}-{'[0-9]' * _DIGITS}.checkpoint"))


def _read(file: Path, shape: GroupShape) -> GroupState | None:
    header = read_header(file)
    # Only what is of the right size is read at all.
    body = _read_body(file) if header is not None and shape.takes(header.sizes) else None
    if body is None:
        return None
    try:
        state = unpack(body)
    except ValueError:
        return None
    return state if shape.fits(state) else None


# The checkpoints that a group can have.


@dataclass(frozen=True)
class GroupShape:
    """The tensors that a checkpoint of a group must have: their names, kinds and shapes.

    `slots` are the most that a chain may have; `vector` returns one that the model keeps of a
    masked position, of which only the width and the kind matter. `replicas` are the rows of each
    chain, `particles` the chains of a population. Asynchronous chains fill `windows` or have single
    sites.
    """

    fresh: GroupState
    epochs: int
    slots: int
    vector: Callable[[], Tensor]
    replicas: int = 1
    windows: bool = False
    particles: int = 0

    def takes(self, sizes: Sizes) -> bool:
        """Whether tensors of these kinds and shapes can be of this group; nothing is read yet."""
        try:
            expected = tensors_of(self._like(sizes))
        except (KeyError, IndexError, ValueError):
            return False
        return sizes == {name: (one.dtype, tuple(one.shape)) for name, one in expected.items()}

    def _like(self, sizes: Sizes) -> GroupState:
        """Return a group without content that has the same parts, as large as they may be."""
        state = self.fresh.to(torch.device("meta"))
        bare = state.chains
        rows, length = bare.tokens.shape

        def real(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float64, device="meta")

        chains = bare
        if "sites.hidden" in sizes or "buffers.tokens" in sizes:
            vector = self.vector()
            hidden = real(rows, length, vector.shape[-1]).to(vector.dtype)
            chains = replace(
                bare, pass_cache=PassCache(hidden, real(rows, length), real(rows, length))
            )
        if "buffers.tokens" in sizes:
            state = replace(state, buffers=self._buffers(chains, sizes))
        if "known.values" in sizes:
            columns = sizes["known.values"][1][-1]
            known = PartValues(None, real(rows, min(columns, _MOST_VALUES)), real(rows))
            chains, bare = (replace(one, part_values=known) for one in (chains, bare))
        return state.with_chains(chains if "sites.hidden" in sizes else bare)

    def _buffers(self, chains: Chains, sizes: Sizes) -> dict[str, Tensor]:
        if self.windows:
            return WindowBuffers.of(chains, chains.step, 0, AHEAD).tensors()
        rows, length = chains.tokens.shape
        slots = (sizes["buffers.slot_place"][1][0] - 1) // rows
        stages = sizes["buffers.draw_accept"][1][-1]
        if not (1 <= slots <= min(self.slots, length) and 1 <= stages <= _MOST_STAGES):
            raise ValueError("more slots or stages than a chain has")
        return SiteBuffers.of(chains, stages, 0, slots, AHEAD).tensors()

    def fits(self, state: GroupState) -> bool:
        """Whether a state is one of these chains; its shapes are known to be right."""
        chains, fresh = state.chains, self.fresh.chains
        fixed = _FIXED if fresh.resizable else (*_FIXED, *_FIXED_LENGTH)
        buffered = [name for name in fixed if name in state.buffers]
        return (
            0 <= state.epoch <= self.epochs
            and 0 <= state.end <= self.epochs
            and 1 <= state.budget <= self.fresh.budget
            and all(torch.equal(getattr(chains, name), getattr(fresh, name)) for name in fixed)
            and (not fresh.resizable or _sizes_fit(chains))
            and _frozen(chains) == _frozen(fresh)
            and torch.equal(_outside(chains), _outside(fresh))
            and self._numbered(chains)
            and all(torch.equal(state.buffers[name], getattr(fresh, name)) for name in buffered)
        )

    def _numbered(self, chains: Chains) -> bool:
        """Whether replicas are numbered as they can be: particles take over any of their number."""
        if self.particles:
            return bool(((chains.replica >= 0) & (chains.replica < self.particles)).all())
        return torch.equal(
            _sorted(chains, self.replicas), _sorted(self.fresh.chains, self.replicas)
        )


def _frozen(chains: Chains) -> list[list[int]]:
    """Return the tokens of each chain that no step changes, in order."""
    held = chains.inside & ~chains.free
    return [row[kept].tolist() for row, kept in zip(chains.tokens, held, strict=True)]


def _outside(chains: Chains) -> Tensor:
    """Return how many positions of each chain may change and belong to no region."""
    return (chains.free & (chains.region < 0)).sum(1)


def _sizes_fit(chains: Chains) -> bool:
    """Whether lengths and regions are possible: each region in one piece, within its bounds."""
    inside, region = chains.inside, chains.region
    held = torch.where(inside, region, -1)
    sizes = sizes_of(chains)
    pieces = (held[:, 1:] != held[:, :-1]) & (held[:, 1:] >= 0)
    begun = pieces.sum(1) + (held[:, 0] >= 0)
    return bool(
        (chains.lengths >= 1).all()
        and (chains.lengths <= chains.tokens.shape[1]).all()
        and torch.equal(held, region)
        and (sizes >= chains.bounds[..., 0]).all()
        and (sizes <= chains.bounds[..., 1]).all()
        and (begun <= (chains.bounds[..., 1] > 0).sum(1)).all()
        and not (chains.free & ~inside).any()
        and (chains.free | (region < 0)).all()
    )


def _sorted(chains: Chains, replicas: int) -> Tensor:
    """Return the replicas of each chain in order: swaps only move them."""
    return chains.replica.view(-1, replicas).sort(1).values
