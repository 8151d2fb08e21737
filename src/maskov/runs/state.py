"""The state of a group of chains, what it needs to continue and nothing else; its checkpoints.

The masked passes that a chain keeps are part of it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that continues must be the run
that was never stopped, to the byte. The same bytes are saved in a checkpoint and carry a group to a
worker and back.

A checkpoint is one file that proves itself whole: a SHA-256, and the tensors that it is of in the
format of safetensors. A hash tells damage by chance; a forged file computes it, too, and may
promise more than memory holds. So a checkpoint is read only if its header promises the tensors of
this group, and resumed only if what no step changes is unchanged. A forged but plausible checkpoint
still chooses where its chains continue.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes, save as to_bytes

from maskov.config import Manifest
from maskov.errors import refuse
from maskov.execution.buffers import (
    AHEAD,
    COUNTS,
    ENERGIES,
    FILLS,
    SiteBuffers,
    WindowBuffers,
    sizes_of,
)
from maskov.runs.files import open_regular, write_atomically
from maskov.types import Chains, PartValues, PassCache, Tensor, Traces

# The results of some chains at the end of an epoch, a row a chain: `energy`, `counts`, `tokens`,
# `lengths`, `sizes` of the regions, `rejected`, true where a proposal was rejected, and more. A run
# keeps those that mean something in it.
Row = dict[str, Tensor]

_NUMBERS = {"epoch": int, "begun": bool, "budget": int, "target": int}

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
# What reading a file fails with that is not a checkpoint.
_BROKEN = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError,
)  # fmt: skip
# What no step of these chains changes.
_FIXED = ("chain", "source", "bounds", "reference")
_FIXED_LENGTH = ("lengths", "free", "region")

# The kind and the shape of each tensor, by its name.
Sizes = dict[str, tuple[torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True)
class GroupState:
    """A group of chains between two steps.

    Chains are cut into groups that fit on a device; each goes through the run by itself, so that
    its results depend on nothing but its own state. The group is in `epoch`; `counts` are those of
    the epoch so far, those of experts' calls last; `rejected` says where a proposal was rejected.
    `buffers` are those of asynchronous chains. `begun` says that its blanks are filled.
    `budget` is the tokens of a model call. `target` says whose parts the chains know the values of:
    the number of an energy of the kernel (`energies_of`), −1 if none.
    """

    chains: Chains
    counts: Tensor
    rejected: Tensor
    epoch: int = 0
    begun: bool = False
    budget: int = 0
    target: int = -1
    buffers: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def fresh(cls, chains: Chains, budget: int, experts: int = 0) -> GroupState:
        """Return the state of a group whose blanks are still to be filled."""
        return cls(chains, *nothing_yet(chains, experts), budget=budget)

    def to(self, device: torch.device) -> GroupState:
        """Return this state on a device; the buffers are copied in any case.

        Asynchronous chains are moved in place, and a task must leave what it began with as it was.
        """
        return replace(
            self,
            chains=self.chains.to(device),
            counts=self.counts.to(device),
            rejected=self.rejected.to(device),
            buffers={name: value.to(device, copy=True) for name, value in self.buffers.items()},
        )

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return sum(value.nbytes for value in tensors_of(self).values())

    def __reduce__(self) -> tuple[Any, ...]:
        """Send it to another process as it would be saved."""
        return unpack, (pack(self),)


def cut(chains: int, most: int) -> list[range]:
    """Cut the chains of a run into groups of at most so many, of one size but for the last."""
    groups = -(-chains // most)
    size = -(-chains // groups)
    return [range(first, min(first + size, chains)) for first in range(0, chains, size)]


def kept_epochs(manifest: Manifest) -> Sequence[int]:
    """Return the epochs whose sequences are kept: samples, or the last ones where a run may end."""
    thin, schedule = manifest.config.thin, manifest.schedule
    if not thin:
        return [check - 1 for check in manifest.checks]
    return range(schedule.burn_in + thin - 1, schedule.epochs, thin)


def nothing_yet(chains: Chains, experts: int) -> tuple[Tensor, Tensor]:
    """Return the counts and rejections of an epoch that has not begun."""
    counts = torch.zeros((len(chains.chain), len(COUNTS) + experts), dtype=torch.long)
    return counts.to(chains.chain.device), torch.zeros_like(chains.free)


def traces_of(row: Row) -> Traces:
    """Name the columns of a row."""
    named = {
        **dict(zip(ENERGIES, row["energy"].unbind(1), strict=True)),
        **dict(zip(COUNTS, row["counts"].unbind(1), strict=False)),
        **{name: value for name, value in row.items() if name not in ("energy", "counts")},
        "expert_calls": row["counts"][:, len(COUNTS) :],
    }
    return {name: column.cpu().numpy() for name, column in named.items()}


# Groups as bytes.


def tensors_of(group: GroupState) -> dict[str, Tensor]:
    """Return every tensor of a group by its name in a checkpoint."""
    chains, known = group.chains, group.chains.part_values
    sites = {} if chains.pass_cache is None else chains.pass_cache.tensors()
    values = {} if known is None else {"values": known.values, "energy": known.energy}
    parts = {"chains": chains.tensors(), "sites": sites, "known": values, "buffers": group.buffers}
    tensors = {f"{part}.{name}": one for part in parts for name, one in parts[part].items()}
    return tensors | {"counts": group.counts, "rejected": group.rejected}


def pack(group: GroupState, run: str = "") -> bytes:
    """Turn a group into bytes; `run` is the signature of the run it belongs to."""
    sites = group.chains.pass_cache
    # Which positions the passes of the sites mask; 0: each alone.
    numbers = {
        "run": run,
        "site_groups": 0 if sites is None else sites.groups or 0,
        **{name: getattr(group, name) for name in _NUMBERS},
    }
    kept = {name: value.contiguous().cpu() for name, value in tensors_of(group).items()}
    return to_bytes(kept, {"group": json.dumps(numbers)})


def unpack(body: bytes) -> GroupState:
    """Turn bytes into a group; bytes that are none are a `ValueError`."""
    try:
        _, numbers = read_header(io.BytesIO(body))
        groups, _ = numbers.pop("site_groups"), numbers.pop("run")
        refuse(
            (
                type(groups) is not int or {n: type(one) for n, one in numbers.items()} != _NUMBERS,
                "its numbers are of another kind",
            ),
            kind=ValueError,
        )
        parts: dict[str, dict[str, Any]] = {}
        for name, tensor in from_bytes(body).items():
            part, _, inner = name.rpartition(".")
            parts.setdefault(part, {})[inner] = tensor
        sites, known = parts.get("sites"), parts.get("known")
        chains = Chains(
            **parts["chains"],
            pass_cache=PassCache(**sites, groups=max(groups, 0) or None) if sites else None,
            # Which energy they are of, the kernel tells (`GroupState.target`).
            part_values=PartValues(None, **known) if known else None,
        )
        return GroupState(chains, **parts[""], **numbers, buffers=parts.get("buffers", {}))
    except _BROKEN as error:
        raise ValueError(f"no checkpoint: {error}") from error


# Checkpoints.


def seal(body: bytes) -> bytes:
    """Return a checkpoint of these tensors, with the hash that proves it whole."""
    return hashlib.sha256(body).digest() + body


def read_header(file: IO[bytes]) -> tuple[Sizes, dict[str, Any]]:
    """Read the sizes of the tensors in a file and the numbers alongside them, not proven yet.

    One that promises other bytes is refused.
    """
    size = int.from_bytes(file.read(8), "little")
    refuse((size > _MOST_HEADER, "its header is too long"), kind=ValueError)
    found = json.loads(file.read(size))
    numbers = dict(json.loads(found.pop("__metadata__")["group"]))
    sizes = {
        str(name): (_KINDS[entry["dtype"]], tuple(entry["shape"])) for name, entry in found.items()
    }
    promised = sum(kind.itemsize * prod(shape) for kind, shape in sizes.values())
    refuse(
        (file.tell() + promised != file.seek(0, io.SEEK_END), "it is of another size"),
        kind=ValueError,
    )
    return sizes, numbers


def save_checkpoint(folder: Path, group: int, state: GroupState, run: str = "") -> None:
    """Write the newest checkpoint of a group and drop those no longer needed."""
    older = _files(folder, group)
    serial = int(older[-1].stem[-_DIGITS:]) + 1 if older else 0
    path = folder / f"{group:05d}-{serial:0{_DIGITS}d}.checkpoint"
    write_atomically(path, seal(pack(state, run)))
    for file in older[: 1 - _KEPT]:
        file.unlink(missing_ok=True)


def load_checkpoint(
    folder: Path, group: int, shape: GroupShape, run: str = ""
) -> tuple[GroupState | None, list[Path]]:
    """Return the newest whole checkpoint of a group, if any, and the damaged ones passed over.

    One of another shape or of another run is damaged, too.
    """
    damaged: list[Path] = []
    for file in reversed(_files(folder, group)):
        with suppress(*_BROKEN), open_regular(file) as opened:
            opened.seek(START)
            sizes, numbers = read_header(opened)
            # Only what is of the right size is read at all.
            if numbers["run"] == run and shape.takes(sizes):
                opened.seek(0)
                content = opened.read()
                state = unpack(content[START:])
                if seal(content[START:]) == content and shape.fits(state):
                    return state, damaged
        damaged.append(file)
    return None, damaged


def _files(folder: Path, group: int) -> list[Path]:
    return sorted(folder.glob(f"{group:05d}-{'[0-9]' * _DIGITS}.checkpoint"))


# The checkpoints that a group can have.


@dataclass(frozen=True)
class GroupShape:
    """The tensors that a checkpoint of a group must have: their names, kinds and shapes.

    `slots` are the most that a chain may have; `vector` returns one that the model keeps of a
    masked position, of which only the width and the kind matter. `particles` are the chains of a
    population. With `windows`, chains may fill these in rounds.
    """

    fresh: GroupState
    epochs: int
    slots: int
    vector: Callable[[], Tensor]
    windows: bool = False
    particles: int = 0

    def takes(self, sizes: Sizes) -> bool:
        """Whether tensors of these kinds and shapes can be of this group; nothing is read yet.

        Sizes that no group can have may also fail, as a broken file does.
        """
        whole = tensors_of(self._whole(sizes))
        # A part is there with all its tensors, or with none.
        parts = {"", "chains", *(name.rpartition(".")[0] for name in sizes)}
        return sizes == {
            name: (one.dtype, tuple(one.shape))
            for name, one in whole.items()
            if name.rpartition(".")[0] in parts
        }

    def _whole(self, sizes: Sizes) -> GroupState:
        """Return a group without content that has all parts, as large as these but for bounds."""
        state = self.fresh.to(torch.device("meta"))
        rows, length = state.chains.tokens.shape
        vector, real = self.vector(), partial(torch.empty, dtype=torch.float64, device="meta")
        hidden = real((rows, length, vector.shape[-1])).to(vector.dtype)
        columns = min(sizes["known.values"][1][-1], _MOST_VALUES) if "known.values" in sizes else 0
        chains = replace(
            state.chains,
            pass_cache=PassCache(hidden, real((rows, length)), real((rows, length))),
            part_values=PartValues(None, real((rows, columns)), real((rows,))),
        )
        return replace(state, chains=chains, buffers=self._buffers(chains, sizes))

    def _buffers(self, chains: Chains, sizes: Sizes) -> dict[str, Tensor]:
        if "buffers.tokens" not in sizes:
            return {}
        rows, length = chains.tokens.shape
        if "buffers.window" in sizes:
            orders, terms = (sizes[f"buffers.{name}"][1][1] for name in ("reveal", "terms"))
            passes = sizes["buffers.slot_pending"][1][-1] - FILLS - orders * length
            parts = sizes["buffers.values"][1][-1]
            known = self.windows and 1 <= passes <= length
            refuse(
                (
                    not (known and 0 <= orders <= terms <= parts <= _MOST_STAGES and parts),
                    "more passes or parts of an energy than a chain has",
                ),
                kind=ValueError,
            )
            real = partial(torch.empty, dtype=torch.float64, device="meta")
            values, remembered = real((rows, length + 1, parts)), real((rows, terms, length))
            reveal = chains.tokens[:, None].expand(rows, orders, length)
            experts = self.fresh.counts.shape[1] - len(COUNTS)
            return WindowBuffers.of(
                chains, chains.step, 0, AHEAD, passes, values, reveal, remembered, experts
            ).tensors()
        slots = (sizes["buffers.slot_place"][1][0] - 1) // rows
        refuse(
            (not 1 <= slots <= min(self.slots, length), "more slots than a chain has"),
            kind=ValueError,
        )
        return SiteBuffers.of(chains, 0, slots, AHEAD).tensors()

    def fits(self, state: GroupState) -> bool:
        """Whether a state is one of these chains; its shapes are known to be right."""
        chains, fresh = state.chains, self.fresh.chains
        # Particles descend from one of their number; other chains from none.
        if not bool(((chains.ancestor >= 0) & (chains.ancestor < max(self.particles, 1))).all()):
            return False
        # A particle has the length of the one that it descends from.
        descends = self.particles and state.begun
        sized = fresh.rows(chains.ancestor) if descends else fresh
        lengths = () if fresh.resizable else _FIXED_LENGTH
        buffered = [name for name in (*_FIXED, *lengths) if name in state.buffers]
        names = {"tokens", *_FIXED_LENGTH} & state.buffers.keys()
        held: dict[str, Any] = {name: state.buffers[name] for name in names}
        return (
            0 <= state.epoch <= self.epochs
            and 1 <= state.budget <= self.fresh.budget
            and all(torch.equal(getattr(chains, name), getattr(fresh, name)) for name in _FIXED)
            and all(torch.equal(getattr(chains, name), getattr(sized, name)) for name in lengths)
            and (not fresh.resizable or _sizes_fit(chains))
            and (not fresh.resizable or _sizes_fit(replace(chains, **held)))
            and _frozen(chains) == _frozen(fresh)
            and torch.equal(_outside(chains), _outside(sized))
            and all(torch.equal(state.buffers[name], getattr(fresh, name)) for name in buffered)
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
    sizes = sizes_of(region, chains.bounds)
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
