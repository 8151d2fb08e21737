"""Asynchronous single sites between two rounds: where they stand and what they wait for.

The rules of a round are in `asynchronous.py`; here the buffers are only read.
"""

from __future__ import annotations

from typing import Any

import torch

from maskov.energies.stages import nearness
from maskov.execution.async_chains import AsyncChains
from maskov.execution.buffers import FREE, Buffers, ChainBuffers
from maskov.types import Bool, Int, Sequences, Tensor

# The rank of a step that does not exist: later than all.
NONE_LEFT = 2**40


class AsyncState(AsyncChains):
    """A group of asynchronous chains of single sites, as they stand."""

    buffers: Buffers

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        buffers, device = self.buffers, self.buffers.tokens.device
        count = len(buffers.chain)
        self._slots = (len(buffers.slot_place) - 1) // count
        self._owner = torch.arange(count * self._slots, device=device) // self._slots
        self._steps = buffers.free.sum(1)

    def reload(self, buffers: ChainBuffers) -> bool:
        """Load other chains, if there are as many of them and as long."""
        if not super().reload(buffers):
            return False
        self._steps.copy_(buffers.free.sum(1))
        return True

    def _epoch_steps(self) -> Int[Tensor, " chains"]:
        return self._steps

    def _ready(self) -> Bool[Tensor, " chains"]:
        """Return which chains have all their proposals drawn."""
        return ~self.buffers.opening & self.buffers.fresh.all(1)

    def _novel(self) -> Bool[Tensor, "chains length"]:
        """Return where the proposal differs from the token that stands there."""
        return self.buffers.free & (self.buffers.drawn != self.buffers.tokens)

    def _slot_ranks(self) -> Int[Tensor, "chains slots"]:
        """Return the step, within the epoch, that each slot tests."""
        b = self.buffers
        place = b.slot_place[:-1]
        rank = b.rank[self._owner, place.clamp(min=0)]
        return rank.masked_fill(place == FREE, NONE_LEFT).view(-1, self._slots)

    # What is asked for.

    def _undrawn(self) -> Bool[Tensor, "chains length"]:
        """Return where a proposal is to be drawn."""
        return ~self.buffers.fresh & ~self.buffers.opening[:, None]

    def _nearness(self, place: Tensor, lengths: Tensor) -> Int[Tensor, "n length"]:
        """Return how near every position is to each place, 0 for the nearest."""
        return nearness(place, lengths, self._width)

    def _is_near(
        self, nearness: Int[Tensor, "n length"], count: int | None
    ) -> Bool[Tensor, "n length"]:
        """Mark the `count` nearest positions; None: all others."""
        return nearness < (self._width if count is None else min(count, self._width))

    def _wanted(self, nearness: Int[Tensor, "n length"], number: int) -> Bool[Tensor, "n length"]:
        """Return the passes that stage `number` needs beyond those before it."""
        wanted = self._is_near(nearness, self.stages[number].nearest)
        if number:
            wanted &= ~self._is_near(nearness, self.stages[number - 1].nearest)
        return wanted

    def _slot_sequences(self) -> Sequences:
        """Return the proposal of every slot."""
        b, owner = self.buffers, self._owner
        return Sequences(self._slot_tokens(), b.lengths[owner], source=b.source[owner])

    def _slot_tokens(self) -> Int[Tensor, "slots length"]:
        """Return the tokens that every slot proposes."""
        b, owner = self.buffers, self._owner
        changed = self._places == b.slot_place[:-1, None]
        return torch.where(changed, b.drawn[owner], b.tokens[owner])
