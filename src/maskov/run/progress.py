"""Where a run stands: everything it needs to go on, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from maskov.flow.buffers import COUNTS, ENERGIES
from maskov.types import ChainState, Tensor, Traces

# What some chains came to at the end of an epoch, a row a chain: `energy`, `counts`, `tokens`, and
# `rejected`, true where a proposal was turned down.
Row = dict[str, Tensor]

# The parts of a row that have an entry for each position.
PLACES = ("tokens", "rejected")

_UNDECIDED = -1


@dataclass(frozen=True)
class Progress:
    """A run between two steps.

    `groups` are the chains, in portions that fit on the device together. The run is in `epoch`,
    working on `group`, about to do step `number` of it; `counts` are those of that group so far and
    `rejected` says where a proposal of its epoch was turned down,
    `flight` its buffers where its chains go at their own pace (on to the epoch `end`), and `row`
    what the groups before it came to. `nearest` is the choice of the pilot, whose table `pilot`
    has seen `piloted` epochs. `other_passes` are those outside steps (starts, first energies,
    traces); `samples_bytes` is how much of the samples file belongs to finished epochs.
    """

    groups: tuple[ChainState, ...]
    counts: Tensor
    rejected: Tensor
    pilot: Tensor
    epoch: int = 0
    group: int = 0
    number: int = 0
    end: int = 0
    nearest: int = _UNDECIDED
    piloted: int = 0
    other_passes: int = 0
    samples_bytes: int = 0
    budget: int = 0
    flight: dict[str, Tensor] = field(default_factory=dict)
    row: Row = field(default_factory=dict)

    @classmethod
    def beginning(
        cls, groups: Sequence[ChainState], choices: int, other_passes: int, budget: int
    ) -> Progress:
        """Return the progress of a run whose chains have just been filled."""
        return cls(
            tuple(groups),
            *nothing_yet(groups[0]),
            torch.zeros((choices, 2), dtype=torch.float64),
            other_passes=other_passes,
            budget=budget,
        )

    @property
    def state(self) -> ChainState:
        """The group that is worked on."""
        return self.groups[self.group]

    @property
    def decided(self) -> bool:
        """Whether the pilot has chosen."""
        return self.nearest != _UNDECIDED

    def with_state(self, state: ChainState, **changes: Any) -> Progress:
        """Return this progress with the group that is worked on replaced."""
        groups = (*self.groups[: self.group], state, *self.groups[self.group + 1 :])
        return replace(self, groups=groups, **changes)

    def with_row(self, row: Row) -> Progress:
        """Return this progress with one group's part added to the epoch's row."""
        part = {name: value.to("cpu", copy=True) for name, value in row.items()}
        whole = (
            {name: torch.cat([self.row[name], part[name]]) for name in part} if self.row else part
        )
        return replace(self, row=whole)


def nothing_yet(state: ChainState) -> tuple[Tensor, Tensor]:
    """Return the counts and rejections of an epoch that has not begun."""
    counts = torch.zeros((len(state.chain), len(COUNTS)), dtype=torch.long)
    return counts.to(state.chain.device), torch.zeros_like(state.free)


def traces_of(row: Row) -> Traces:
    """Name the columns of a row."""
    energies = zip(ENERGIES, row["energy"].unbind(1), strict=True)
    counts = zip(COUNTS, row["counts"].unbind(1), strict=True)
    places = ((name, row[name]) for name in PLACES)
    return {name: column.numpy() for name, column in (*energies, *counts, *places)}
