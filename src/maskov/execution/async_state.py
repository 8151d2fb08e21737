"""What stands between two rounds: the chains in flight, what they wait for, what they came to.

The rules of a round are in `flow.py`; here the buffers are only read, counted in and exchanged.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from maskov.energies.base import Energy
from maskov.energies.stages import Stage, near
from maskov.execution.buffers import COUNTS, ENERGIES, FREE, Buffers
from maskov.execution.scorer import Engine
from maskov.kernels import Metropolis
from maskov.random import Draws
from maskov.types import Bool, ChainState, Float, Int, Sequences, Sites, Tensor, inside

# The rank of a step that does not exist: later than all.
NONE_LEFT = 2**40


class Board:
    """A group of chains in flight, as they stand."""

    def __init__(
        self,
        kernel: Metropolis,
        stages: tuple[Stage, ...],
        engine: Engine,
        low: Engine | None,
        draws: Draws,
        buffers: Buffers,
        temperatures: Float[Tensor, " epochs"],
        shortest: int = 1,
    ) -> None:
        self.kernel = kernel
        self.stages = stages
        self.engine = engine
        self.low = low
        self.draws = draws
        self.buffers = buffers
        # No chain of the run is shorter; rounds of fixed size are laid out for it.
        self.shortest = shortest
        count, self._width = buffers.tokens.shape
        device = buffers.tokens.device
        self._lanes = (len(buffers.lane_place) - 1) // count
        self._temperatures = temperatures.to(device)
        # No chain may begin an epoch at or beyond this one.
        self.limit = torch.zeros((), dtype=torch.long, device=device)
        self._rows = torch.arange(count, device=device)
        self._places = torch.arange(self._width, device=device)
        self._owner = torch.arange(count * self._lanes, device=device) // self._lanes
        self._inside = inside(buffers.lengths, self._width)
        self._steps = buffers.free.sum(1)
        self._tests_low = torch.tensor([stage.low for stage in stages], device=device)

    def slowest(self) -> int:
        """Return the epoch of the slowest chain."""
        return int(self.buffers.epoch.min())

    def energies(self) -> Float[Tensor, "chains 3"]:
        """Return E_raw, E_norm and the target's energy of every chain."""
        b = self.buffers
        terms = (
            -b.logit,
            b.log_normaliser - b.logit,
            self.kernel.energy.of_scores(b.logit, b.log_normaliser),
        )
        return torch.stack([torch.where(self._inside, part, 0.0).sum(1) for part in terms], dim=1)

    def _ready(self) -> Bool[Tensor, " chains"]:
        """Return which chains have all their proposals drawn."""
        return ~self.buffers.opening & self.buffers.fresh.all(1)

    def _novel(self) -> Bool[Tensor, "chains length"]:
        """Return where the proposal differs from the token that stands there."""
        return self.buffers.free & (self.buffers.drawn != self.buffers.tokens)

    def _lane_ranks(self) -> Int[Tensor, "chains lanes"]:
        """Return the step, within the epoch, that each lane tests."""
        b = self.buffers
        place = b.lane_place[:-1]
        rank = b.rank[self._owner, place.clamp(min=0)]
        return rank.masked_fill(place == FREE, NONE_LEFT).view(-1, self._lanes)

    # What is asked for.

    def _waits(self, low: bool) -> Bool[Tensor, "lanes length"]:
        """Return the passes that lanes wait for, in full or in low precision."""
        b = self.buffers
        kind = (self._tests_low[b.lane_stage[:-1]] == low)[:, None]
        return b.lane_pending[:-1] & kind

    def _undrawn(self) -> Bool[Tensor, "chains length"]:
        """Return where a proposal is to be drawn."""
        return ~self.buffers.fresh & ~self.buffers.opening[:, None]

    def _wanted(self, place: Tensor, lengths: Tensor, number: int) -> Bool[Tensor, "n length"]:
        """Return the passes that stage `number` needs beyond those before it."""
        stage = self.stages[number]
        wanted = near(place, lengths, self._width, stage.nearest)
        if number and self.stages[number - 1].low == stage.low:
            wanted &= ~near(place, lengths, self._width, self.stages[number - 1].nearest)
        if stage.low and stage.nearest is None:
            # The chain keeps low-precision terms of every position, the changed one included.
            wanted |= self._places == place[:, None]
        return wanted

    def _lane_sequences(self) -> Sequences:
        """Return what every lane proposes."""
        b, owner = self.buffers, self._owner
        return Sequences(self._lane_tokens(), b.lengths[owner], source=b.source[owner])

    def _lane_tokens(self) -> Int[Tensor, "lanes length"]:
        """Return the tokens that every lane proposes."""
        b, owner = self.buffers, self._owner
        changed = self._places == b.lane_place[:-1, None]
        return torch.where(changed, b.drawn[owner], b.tokens[owner])

    def _count(self, **happened: Tensor) -> None:
        for name, value in happened.items():
            self.buffers.counts[:, COUNTS.index(name)] += value

    def _count_passes(self, chain: Tensor, passes: Tensor) -> None:
        self.buffers.counts[:, COUNTS.index("passes")].index_add_(0, chain, passes)

    # Between groups and windows.

    def reload(self, buffers: Buffers) -> bool:
        """Take other chains on board, if there are as many of them and as long."""
        mine, others = self.buffers.tensors(), buffers.tensors()
        if any(mine[name].shape != others[name].shape for name in mine):
            return False
        for name, value in others.items():
            mine[name].copy_(value)
        self._inside.copy_(inside(buffers.lengths, self._width))
        self._steps.copy_(buffers.free.sum(1))
        return True

    def state(self, like: ChainState) -> ChainState:
        """Return the chains as they stand, none of them within an epoch."""
        b = self.buffers
        # Copies, since others may be taken on board.
        return replace(
            self.glance(like),
            step=b.step.clone(),
            rank=b.rank.clone(),
            sites=Sites(b.hidden.clone(), b.logit.clone(), b.log_normaliser.clone()),
        )

    def glance(self, like: ChainState) -> ChainState:
        """Return the chains as they stand in the middle of things, to be looked at."""
        energy = self.energies()[:, ENERGIES.index("energy_target")]
        return replace(like, tokens=self.buffers.tokens.clone(), energy=energy)

    def row(self, epoch: int) -> dict[str, Tensor]:
        """Return what the chains came to at the end of an epoch that all have finished."""
        b = self.buffers
        slot = epoch % len(b.ring_tokens)
        rings = {
            "energy": b.ring_energy,
            "counts": b.ring_counts,
            "tokens": b.ring_tokens,
            "rejected": b.ring_rejected,
        }
        return {name: ring[slot].to("cpu", copy=True) for name, ring in rings.items()}


def low_terms(low: Engine, energy: Energy, state: ChainState) -> Float[Tensor, "chains length"]:
    """Return the terms of the current tokens in low precision, which the early tests start from."""
    sites = low.sites(state.sequences, energy.needs_normaliser)
    return energy.of_scores(sites.logit, sites.log_normaliser)
