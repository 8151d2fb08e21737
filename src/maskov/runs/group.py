"""The state of a group of chains: everything it needs to go on, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from maskov.config import Manifest
from maskov.execution.buffers import COUNTS, ENERGIES
from maskov.types import Chains, Tensor, Traces

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
        """Bytes that it holds, about."""
        sites = self.chains.pass_cache
        held = [*self.buffers.values(), *([] if sites is None else sites.tensors().values())]
        held += self.chains.tensors().values()
        return sum(value.numel() * value.element_size() for value in held)


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
    known = None if chains.part_values is None else chains.part_values.rows(index)
    return replace(chains.rows(index), part_values=known)


def traces_of(row: Row) -> Traces:
    """Name the columns of a row."""
    energies = zip(ENERGIES, row["energy"].unbind(1), strict=True)
    counts = zip(COUNTS, row["counts"][:, : len(COUNTS)].unbind(1), strict=True)
    named = (*PLACES, *REPLICAS, *EXPERTS, "lengths", "sizes")
    if "expert_energy" in row:
        row = row | {"expert_calls": row["counts"][:, len(COUNTS) :]}
    others = ((name, row[name]) for name in named if name in row)
    return {name: column.cpu().numpy() for name, column in (*energies, *counts, *others)}


def sizes_of(chains: Chains) -> Tensor:
    """Return how many positions each region of each chain has."""
    regions = torch.arange(chains.bounds.shape[1], device=chains.region.device)
    return (chains.region[:, None, :] == regions[:, None]).sum(2)
