"""The state of a group of chains: everything it needs to go on, and nothing else.

The masked passes that a chain keeps are part of it. Computing them again would give the same
numbers up to rounding only, and rounding can turn a decision; a run that goes on must be the run
that was never stopped, to the byte. The same bytes are saved in a checkpoint and carry a group to a
worker and back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from maskov.config import Manifest
from maskov.execution.buffers import COUNTS, ENERGIES, SiteBuffers, WindowBuffers
from maskov.types import Chains, PartValues, PassCache, Tensor, Traces

# The results of some chains at the end of an epoch, a row a chain: `energy`, `counts`, `tokens`,
# `lengths`, `rejected`, true where a proposal was rejected, and what happened to its replicas.
# Where lengths may change, `sizes` are those of the regions.
Row = dict[str, Tensor]

# The parts of a row that have an entry for each position.
PLACES = ("tokens", "rejected")
# The parts that have an entry for each replica or pair of neighbouring replicas of a chain: the
# energy and the number of the state at each temperature, and which pairs were tested and swapped.
REPLICAS = ("rung_energy", "rung_replica", "swap_tested", "swap_accepted")
# The parts that have an entry for each expert of the energy: its value, and how often it was asked.
EXPERTS = ("expert_energy", "expert_calls")
# What chains have that are particles: their weights before they were drawn again, and which of the
# first particles of their population they descend from.
PARTICLES = ("log_weight", "ancestor")

_BUFFERS = [{field.name for field in fields(kind)} for kind in (SiteBuffers, WindowBuffers)]
_NUMBERS = {
    "epoch": int, "end": int, "begun": bool, "other_passes": int, "budget": int, "target": int,
}  # fmt: skip


@dataclass(frozen=True)
class GroupState:
    """A group of chains between two steps.

    Chains are cut into groups that fit on a device; each goes through the run by itself, so that
    its results depend on nothing but its own state. The group is in `epoch`; `counts` are those of
    the epoch so far, those of experts' calls last; `rejected` says where a proposal was rejected.
    `buffers` are those of asynchronous chains, which go on to the epoch `end`. `begun` says that
    its blanks are filled.
    `other_passes` are those outside steps (starts, first energies, traces);
    `budget` is the tokens of a model call. `target` says whose parts the chains know the values of:
    the number of an energy of the kernel (`energies_of`), −1 if none.
    """

    chains: Chains
    counts: Tensor
    rejected: Tensor
    epoch: int = 0
    end: int = 0
    begun: bool = False
    other_passes: int = 0
    budget: int = 0
    target: int = -1
    buffers: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def fresh(cls, chains: Chains, budget: int, experts: int = 0) -> GroupState:
        """Return the state of a group whose blanks are still to be filled."""
        return cls(chains, *nothing_yet(chains, experts), budget=budget)

    def with_chains(self, chains: Chains, **changes: Any) -> GroupState:
        """Return this state with other chains."""
        return replace(self, chains=chains, **changes)

    def to(self, device: torch.device) -> GroupState:
        """Return this state on a device; the buffers are copied in any case.

        Asynchronous chains are moved in place, and a task must leave what it began with as it was.
        """
        buffers = {name: value.to(device, copy=True) for name, value in self.buffers.items()}
        counts, rejected = self.counts.to(device), self.rejected.to(device)
        chains = self.chains.to(device)
        return replace(self, chains=chains, counts=counts, rejected=rejected, buffers=buffers)

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


def groups_of(manifest: Manifest) -> list[range]:
    """Return the chains of each group; all replicas of a chain are in one."""
    return cut(manifest.chains, max(manifest.config.execution.resident // manifest.replicas, 1))


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


def first_replicas(chains: Chains, replicas: int) -> Chains:
    """Return the rows that are the chains themselves, with their energies."""
    if replicas == 1:
        return chains
    index = torch.arange(0, len(chains.chain), replicas, device=chains.chain.device)
    return replace(chains.rows(index, known=True), pass_cache=None)


def traces_of(row: Row) -> Traces:
    """Name the columns of a row."""
    energies = zip(ENERGIES, row["energy"].unbind(1), strict=True)
    counts = zip(COUNTS, row["counts"][:, : len(COUNTS)].unbind(1), strict=True)
    named = (*PLACES, *REPLICAS, *EXPERTS, *PARTICLES, "lengths", "sizes")
    if "expert_energy" in row:
        row = row | {"expert_calls": row["counts"][:, len(COUNTS) :]}
    others = ((name, row[name]) for name in named if name in row)
    return {name: column.cpu().numpy() for name, column in (*energies, *counts, *others)}


def sizes_of(chains: Chains) -> Tensor:
    """Return how many positions each region of each chain has."""
    regions = torch.arange(chains.bounds.shape[1], device=chains.region.device)
    return (chains.region[:, None, :] == regions[:, None]).sum(2)


# Groups as bytes.


def tensors_of(group: GroupState) -> dict[str, Tensor]:
    """Return every tensor of a group by its name in a checkpoint."""
    chains, known = group.chains, group.chains.part_values
    sites = {} if chains.pass_cache is None else chains.pass_cache.tensors()
    values = {} if known is None else {"values": known.values, "energy": known.energy}
    parts = {"chains": chains.tensors(), "sites": sites, "known": values, "buffers": group.buffers}
    tensors = {f"{part}.{name}": one for part in parts for name, one in parts[part].items()}
    return tensors | {"counts": group.counts, "rejected": group.rejected}


def pack(group: GroupState, fields: dict[str, str] | None = None) -> bytes:
    """Turn a group into bytes; `fields` are the hashes of the manifest it belongs to."""
    sites = group.chains.pass_cache
    numbers = {name: getattr(group, name) for name in _NUMBERS}
    # Which positions the passes of the sites mask; 0: each alone.
    numbers["site_groups"] = 0 if sites is None else sites.groups or 0
    metadata = {"group": json.dumps(numbers), "fields": json.dumps(fields or {})}
    kept = {name: value.contiguous().cpu() for name, value in tensors_of(group).items()}
    return to_bytes(kept, metadata)


def unpack(body: bytes) -> GroupState:
    """Turn bytes into a group; bytes that are none are a `ValueError`."""
    try:
        tensors = from_bytes(body)
        size = int.from_bytes(body[:8], "little")
        numbers = json.loads(json.loads(body[8 : 8 + size])["__metadata__"]["group"])
        groups = numbers.pop("site_groups")
        if type(groups) is not int or {n: type(one) for n, one in numbers.items()} != _NUMBERS:
            raise ValueError("its numbers are of another kind")
        parts: dict[str, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            part, _, inner = name.rpartition(".")
            parts.setdefault(part, {})[inner] = tensor
        buffers, sites, known = (parts.get(name, {}) for name in ("buffers", "sites", "known"))
        if buffers and buffers.keys() not in _BUFFERS:
            raise ValueError("its buffers are not whole")
        chains = Chains(
            **parts["chains"],
            pass_cache=PassCache(**sites, groups=max(groups, 0) or None) if sites else None,
            # Which energy they are of, the kernel tells (`GroupState.target`).
            part_values=PartValues(None, **known) if known else None,
        )
        return GroupState(chains, **parts[""], **numbers, buffers=buffers)
    except (SafetensorError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"no checkpoint: {error}") from error
