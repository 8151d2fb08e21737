"""Where a group of chains stands: everything it needs to go on, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from maskov.execution.buffers import COUNTS, ENERGIES
from maskov.execution.pilot import CHOICES
from maskov.types import ChainState, Tensor, Traces

# What some chains came to at the end of an epoch, a row a chain: `energy`, `counts`, `tokens`, and
# `rejected`, true where a proposal was turned down.
Row = dict[str, Tensor]

# The parts of a row that have an entry for each position.
PLACES = ("tokens", "rejected")

UNDECIDED = -1


@dataclass(frozen=True)
class Progress:
    """A group of chains between two steps.

    Chains are cut into groups that fit on a device; each goes through the run by itself, so that
    what becomes of it depends on nothing but its own progress. The group is in `epoch`, about to
    do step `number` of it; `counts` are those of the epoch so far and `rejected` says where a
    proposal was turned down, `flight` its buffers where its chains go at their own pace (on to the
    epoch `end`). `begun` says that its blanks are filled. `pilot` is what the pilot saw, once
    `piloted`, and `nearest` what was then chosen by the tables of all groups. `other_passes` are
    those outside steps (starts, first energies, traces); `budget` is the tokens of a model call.
    """

    state: ChainState
    counts: Tensor
    rejected: Tensor
    pilot: Tensor
    epoch: int = 0
    number: int = 0
    end: int = 0
    begun: bool = False
    piloted: bool = False
    nearest: int = UNDECIDED
    other_passes: int = 0
    budget: int = 0
    flight: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def fresh(cls, state: ChainState, budget: int) -> Progress:
        """Return the progress of a group whose blanks are still to be filled."""
        table = torch.zeros((len(CHOICES), 2), dtype=torch.float64)
        return cls(state, *nothing_yet(state), table, budget=budget)

    @property
    def waits(self) -> bool:
        """Whether the group waits for the choice that all groups' pilots make together."""
        return self.piloted and self.nearest == UNDECIDED

    def with_state(self, state: ChainState, **changes: Any) -> Progress:
        """Return this progress with other chains."""
        return replace(self, state=state, **changes)

    def to(self, device: torch.device) -> Progress:
        """Return this progress on a device; the buffers of a flight are copied in any case.

        Chains in flight are moved in place, and a turn must leave what it began with as it was.
        """
        flight = {name: value.to(device, copy=True) for name, value in self.flight.items()}
        counts, rejected = self.counts.to(device), self.rejected.to(device)
        state = self.state.to(device)
        return replace(self, state=state, counts=counts, rejected=rejected, flight=flight)

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        sites = self.state.sites
        held = [*self.flight.values(), *([] if sites is None else vars(sites).values())]
        held += [value for value in vars(self.state).values() if isinstance(value, Tensor)]
        return sum(value.numel() * value.element_size() for value in held)


def nothing_yet(state: ChainState) -> tuple[Tensor, Tensor]:
    """Return the counts and rejections of an epoch that has not begun."""
    counts = torch.zeros((len(state.chain), len(COUNTS)), dtype=torch.long)
    return counts.to(state.chain.device), torch.zeros_like(state.free)


def traces_of(row: Row) -> Traces:
    """Name the columns of a row."""
    energies = zip(ENERGIES, row["energy"].unbind(1), strict=True)
    counts = zip(COUNTS, row["counts"].unbind(1), strict=True)
    places = ((name, row[name]) for name in PLACES)
    return {name: column.cpu().numpy() for name, column in (*energies, *counts, *places)}
