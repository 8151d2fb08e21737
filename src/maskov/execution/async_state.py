"""Asynchronous chains between two rounds: where they stand and what they wait for.

The rules of a round are in `asynchronous.py`; here the buffers are only read, counted in and
exchanged.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from maskov.energies.base import Energy
from maskov.energies.stages import TestPlan, near
from maskov.execution.buffers import COUNTS, ENERGIES, FREE, Buffers
from maskov.kernels import Metropolis
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.types import Bool, Chains, Float, Int, Sequences, Sites, Tensor, inside

# The rank of a step that does not exist: later than all.
NONE_LEFT = 2**40


class AsyncState:
    """A group of asynchronous chains, as they stand."""

    def __init__(
        self,
        kernel: Metropolis,
        plan: TestPlan,
        scorer: Scorer,
        low: Scorer | None,
        rng: Rng,
        buffers: Buffers,
        temperatures: Float[Tensor, " epochs"],
        shortest: int = 1,
    ) -> None:
        self.kernel = kernel
        self.plan = plan
        self.stages = plan.stages
        masked = kernel.energy.masked
        assert masked is not None, "asynchronous chains cache masked passes"
        self.masked = masked
        self.scorer = scorer
        self.low = low
        self.rng = rng
        self.buffers = buffers
        # No chain of the run is shorter; rounds of fixed size are laid out for it.
        self.shortest = shortest
        count, self._width = buffers.tokens.shape
        device = buffers.tokens.device
        self._slots = (len(buffers.slot_place) - 1) // count
        self._temperatures = temperatures.to(device)
        # No chain may begin an epoch at or beyond this one.
        self.limit = torch.zeros((), dtype=torch.long, device=device)
        self._rows = torch.arange(count, device=device)
        self._places = torch.arange(self._width, device=device)
        self._owner = torch.arange(count * self._slots, device=device) // self._slots
        self._inside = inside(buffers.lengths, self._width)
        self._steps = buffers.free.sum(1)
        # Whether a stage is the first to need some other part of the energy.
        asks = [bool(plan.new_evaluations(number)) for number in range(len(self.stages))]
        self._asks = torch.tensor(asks, device=device)
        self._tests_low = torch.tensor([stage.low for stage in self.stages], device=device)

    def slowest(self) -> int:
        """Return the epoch of the slowest chain."""
        return int(self.buffers.epoch.min())

    def energies(self) -> Float[Tensor, "chains 3"]:
        """Return E_raw, E_norm and the target's energy of every chain."""
        b = self.buffers
        terms = (
            -b.logit,
            b.log_normaliser - b.logit,
            self.masked.of_scores(b.logit, b.log_normaliser),
        )
        sums = [torch.where(self._inside, part, 0.0).sum(1) for part in terms]
        for weight, part in self.kernel.energy.others:
            sums[2] = sums[2] + weight * b.others[:, self.plan.names.index(str(part))]
        return torch.stack(sums, dim=1)

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

    def _waits(self, low: bool) -> Bool[Tensor, "slots length"]:
        """Return the passes that slots wait for, in full or in low precision."""
        b = self.buffers
        kind = (self._tests_low[b.slot_stage[:-1]] == low)[:, None]
        return b.slot_pending[:-1] & kind

    def _undrawn(self) -> Bool[Tensor, "chains length"]:
        """Return where a proposal is to be drawn."""
        return ~self.buffers.fresh & ~self.buffers.opening[:, None]

    def _wanted(self, place: Tensor, lengths: Tensor, number: int) -> Bool[Tensor, "n length"]:
        """Return the passes that stage `number` needs beyond those before it."""
        stage = self.stages[number]
        wanted = near(place, lengths, self._width, stage.nearest)
        if number and self.stages[number - 1].low == stage.low:
            wanted &= ~near(place, lengths, self._width, self.stages[number - 1].nearest)
        before = self.stages[number - 1] if number else None
        if (
            stage.low
            and stage.nearest is None
            and not (before and before.low and before.nearest is None)
        ):
            # The chain keeps low-precision terms of every position, the changed one included.
            wanted |= self._places == place[:, None]
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

    def _count(self, **happened: Tensor) -> None:
        for name, value in happened.items():
            self.buffers.counts[:, COUNTS.index(name)] += value

    def _count_passes(self, chain: Tensor, passes: Tensor) -> None:
        self.buffers.counts[:, COUNTS.index("passes")].index_add_(0, chain, passes)

    # Between groups and windows.

    def reload(self, buffers: Buffers) -> bool:
        """Load other chains, if there are as many of them and as long."""
        mine, others = self.buffers.tensors(), buffers.tensors()
        if any(mine[name].shape != others[name].shape for name in mine):
            return False
        for name, value in others.items():
            mine[name].copy_(value)
        self._inside.copy_(inside(buffers.lengths, self._width))
        self._steps.copy_(buffers.free.sum(1))
        return True

    def state(self, like: Chains) -> Chains:
        """Return the chains as they stand, none of them within an epoch."""
        b = self.buffers
        # Copies, since other chains may be loaded into these buffers.
        return replace(
            self.snapshot(like),
            step=b.step.clone(),
            number=torch.zeros_like(b.number),
            rank=b.rank.clone(),
            sites=Sites(b.hidden.clone(), b.logit.clone(), b.log_normaliser.clone()),
        )

    def snapshot(self, like: Chains) -> Chains:
        """Return the chains as they stand in the middle of a round, to be looked at."""
        b, energy = self.buffers, self.kernel.energy
        values = {name: b.others[:, i].clone() for i, name in enumerate(self.plan.names)}
        values[str(energy)] = self.energies()[:, ENERGIES.index("energy_target")]
        return replace(like, tokens=b.tokens.clone(), energies=values)

    def row(self, epoch: int) -> dict[str, Tensor]:
        """Return the results of an epoch that all chains have finished."""
        b = self.buffers
        ring_row = epoch % len(b.ring_tokens)
        rings = {
            "energy": b.ring_energy,
            "counts": b.ring_counts,
            "tokens": b.ring_tokens,
            "rejected": b.ring_rejected,
        }
        row = {name: ring[ring_row].to("cpu", copy=True) for name, ring in rings.items()}
        return row | {"lengths": b.lengths.to("cpu", copy=True)}


def low_terms(low: Scorer, energy: Energy, state: Chains) -> Float[Tensor, "chains length"]:
    """Return the terms of the current tokens in low precision, which the early tests start from."""
    masked = energy.masked
    assert masked is not None
    sites = low.sites(state.sequences, masked.needs_normaliser)
    return masked.of_scores(sites.logit, sites.log_normaliser)
