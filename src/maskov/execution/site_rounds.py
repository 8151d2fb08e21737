"""Rounds of single sites: Metropolis-Hastings with speculative tests.

Chains cache the masked passes of their sequence, so all proposals of an epoch are known at once:
draws equal to the current token are accepted without a test, and the next one that differs is
tested in a *slot*. With several slots a chain also tests the proposals that come next if the first
is rejected.
"""

from __future__ import annotations

import torch

from maskov.energies.stages import nearness
from maskov.execution.buffers import ACCEPTED, FREE, REJECTED, TESTING, SiteBuffers
from maskov.execution.rounds import Asked, Rounds, put
from maskov.kernels.base import log_ratio
from maskov.moves.filling import draw
from maskov.types import Bool, Float, Int, Tensor

# The rank of a step that does not exist: later than all.
NONE_LEFT = 2**40


class SiteRounds(Rounds):
    """A group of chains of single sites."""

    buffers: SiteBuffers

    def _prepare(self) -> None:
        self._close()
        put(self.buffers.fresh, self._open(), ~self._inside)
        self._draw()

    def _test(self) -> None:
        self._offer()
        self._pass()
        self._decide()
        self._settle()

    # Where chains stand and what they wait for.

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

    def _stale(self) -> Bool[Tensor, "chains length"]:
        return ~self.buffers.fresh & ~self.buffers.opening[:, None]

    def _queries(self, slot: Int[Tensor, " passes"], column: Int[Tensor, " passes"]) -> Asked:
        b, owner = self.buffers, self._owner[slot]
        proposed = self._proposed(slot)
        wanted = self._places == column[:, None]
        masked = proposed.masked_fill(wanted, self.scorer.model.mask_id)
        back = torch.zeros_like(slot, dtype=torch.bool)
        return Asked(masked, b.lengths[owner], wanted, proposed, wanted, back)

    def _proposed(self, slot: Int[Tensor, " passes"]) -> Int[Tensor, "passes length"]:
        """Return the sequence that each of some slots tests."""
        b, owner = self.buffers, self._owner[slot]
        changed = self._places == b.slot_place[slot, None]
        return torch.where(changed, b.drawn[owner], b.tokens[owner])

    def _wanted(self, nearness: Int[Tensor, "n length"], number: int) -> Bool[Tensor, "n length"]:
        """Return the passes that stage `number` needs beyond those before it."""
        wanted = self._is_near(nearness, self.stages[number].nearest)
        if number:
            wanted &= ~self._is_near(nearness, self.stages[number - 1].nearest)
        return wanted

    def _is_near(
        self, nearness: Int[Tensor, "n length"], count: int | None
    ) -> Bool[Tensor, "n length"]:
        """Mark the `count` nearest positions; None: all others."""
        return nearness < (self._width if count is None else min(count, self._width))

    # The parts of a round.

    def _close(self) -> None:
        """End the epoch of chains with nothing left to test; keep its results."""
        b = self.buffers
        idle = (b.slot_place[:-1] == FREE).view(-1, self._slots).all(1)
        left = (self._novel() & (b.rank >= b.epoch_step[:, None])).any(1)
        ended = self._ready() & idle & ~left
        rest = torch.where(ended, b.steps - b.epoch_step, 0)
        self._count(steps=rest, accepted=rest)
        self._end_epoch(ended)

    def _draw(self) -> None:
        """Draw the proposals of chains that have moved or begun an epoch."""
        b = self.buffers
        where = self._stale_places()
        if where is None:
            return
        hidden, keys = b.hidden[where], (*self._step_of(*where), where[1])
        drawn = draw(hidden, b.tokens[where], self.rng, keys, self.kernel.conditional, self.scorer)
        known = b.log_normaliser[where]
        normaliser = torch.where(known.isnan(), drawn.log_normaliser, known)
        for buffer, value in (
            (b.drawn, drawn.token),
            (b.drawn_logit, drawn.logit),
            (b.log_forward, drawn.log_forward),
            (b.log_reverse, drawn.log_reverse),
            (b.log_normaliser, normaliser),
            (b.fresh, torch.ones_like(known, dtype=torch.bool)),
        ):
            self._put_places(where, buffer, value)

    def _step_of(self, chain: Int[Tensor, " n"], place: Int[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """Return what the numbers of some positions are keyed by: the chain and the step."""
        b = self.buffers
        return b.chain[chain], b.step[chain] + b.rank[chain, place]

    def _offer(self) -> None:
        """Give the free slots of each chain its next proposals that differ, in order."""
        b = self.buffers
        ranks = self._slot_ranks()
        free = ranks == NONE_LEFT
        latest = ranks.masked_fill(free, -1).amax(1)
        after = torch.maximum(latest, b.epoch_step - 1)
        later = self._novel() & (b.rank > after[:, None])
        soonest, place = b.rank.masked_fill(~later, NONE_LEFT).topk(self._slots, largest=False)
        # The first free slot gets the first of them, and so on.
        turn = free.cumsum(1) - 1
        given = turn.clamp(min=0)
        soonest, place = soonest.gather(1, given), place.gather(1, given)
        busy = (~free).sum(1, keepdim=True)
        free = free & (turn + busy < self._usable_slots()[:, None])
        begun = (self._ready()[:, None] & free & (soonest < NONE_LEFT)).flatten()
        # Where the reverse is impossible the move is rejected whatever its energy.
        possible = b.log_reverse.gather(1, place).flatten() > -torch.inf
        place = place.flatten()
        near = nearness(place, b.lengths[self._owner], self._width)
        wanted = self._wanted(near, 0) & possible[:, None]
        b.slot_place[:-1] = torch.where(begun, place, b.slot_place[:-1])
        b.slot_pending[:-1] = torch.where(begun[:, None], wanted, b.slot_pending[:-1])
        for field in (b.slot_stage, b.slot_verdict, b.slot_ratio):
            field[:-1] = field[:-1].masked_fill(begun, 0)

    def _decide(self) -> None:
        """Test every slot that has what its stage needs."""
        b, owner = self.buffers, self._owner
        busy = (b.slot_place[:-1] != FREE) & (b.slot_verdict[:-1] == TESTING)
        busy &= ~b.slot_pending[:-1].any(1)
        place = b.slot_place[:-1].clamp(min=0)
        near, stage = nearness(place, b.lengths[owner], self._width), b.slot_stage[:-1]
        ratio = self._ratios(near, place).gather(1, stage[:, None]).squeeze(1)
        gained = ratio - b.slot_ratio[:-1]
        passed, _ = self.rng.accept(gained, *self._step_of(owner, place), stage)
        last = stage == len(self.stages) - 1
        verdict = torch.where(passed, torch.where(last, ACCEPTED, TESTING), REJECTED)
        b.slot_verdict[:-1] = torch.where(busy, verdict, b.slot_verdict[:-1])
        further = busy & passed & ~last
        b.slot_ratio[:-1] = torch.where(further, ratio, b.slot_ratio[:-1])
        b.slot_stage[:-1] += further
        for number in range(1, len(self.stages)):
            wanted = self._wanted(near, number)
            begun = further & (b.slot_stage[:-1] == number)
            b.slot_pending[:-1] = torch.where(begun[:, None], wanted, b.slot_pending[:-1])

    def _ratios(
        self, near: Int[Tensor, "slots length"], place: Int[Tensor, " slots"]
    ) -> Float[Tensor, "slots stages"]:
        """Return what every slot's tests compare with; meaningless where passes are missing."""
        b, energy, owner = self.buffers, self.masked, self._owner
        at, temperature = (owner, place), self._temperatures[self._epoch()[owner]]
        new = energy.of_scores(b.slot_logit[:-1], b.slot_normaliser[:-1])
        others = energy.of_scores(b.logit, b.log_normaliser)[owner] - new
        # The pass that masks the changed position is the same before and after the move.
        normaliser = b.log_normaliser[at]
        own = energy.of_scores(b.logit[at], normaliser)
        own = own - energy.of_scores(b.drawn_logit[at], normaliser)
        ratios = []
        for stage in self.stages:
            known = self._is_near(near, stage.nearest)
            drop = own + torch.where(known, others, 0.0).sum(1)
            ratios.append(log_ratio(drop, b.log_forward[at], b.log_reverse[at], temperature))
        return torch.stack(ratios, dim=1)

    def _settle(self) -> None:
        """Move chains along: past rejected proposals in order, to the first accepted one."""
        b = self.buffers
        rank, front = self._slot_ranks().sort(1)
        slot = self._rows[:, None] * self._slots + front
        place = b.slot_place[slot].clamp(min=0)
        verdict = b.slot_verdict[slot]
        done = (rank < NONE_LEFT) & (verdict != TESTING)
        passed = done & (verdict == ACCEPTED)
        # What comes after an acceptance, or after an open test, is not settled.
        settled = (done & (passed.cumsum(1) == passed)).long().cumprod(1).bool()
        taken = settled & passed
        moves, count = taken.any(1), settled.sum(1)
        reached = torch.where(settled, rank + 1, 0).amax(1)
        number = torch.maximum(b.epoch_step, reached)
        # A draw that equals the current token can always be reversed.
        stuck = settled & (b.log_reverse.gather(1, place) == -torch.inf)
        steps = number - b.epoch_step
        self._count(
            steps=steps, accepted=steps - count + moves, novel=moves * 1,
            proposed_novel=count, irreversible=stuck.sum(1),
        )  # fmt: skip
        refused = (settled & ~taken)[..., None] & (self._places == place[..., None])
        b.rejected |= refused.any(1)
        b.epoch_step.copy_(number)
        first = taken.long().argmax(1, keepdim=True)
        self._move(moves, slot.gather(1, first).squeeze(1), place.gather(1, first).squeeze(1))
        # A rejection frees its own slot; a move makes all proposals of the chain void.
        own = torch.zeros_like(settled).scatter(1, front, settled)
        freed = (moves[:, None] | own).flatten()
        b.slot_place[:-1] = b.slot_place[:-1].masked_fill(freed, FREE)
        b.slot_pending[:-1] &= ~freed[:, None]

    def _move(self, taken: Tensor, slot: Tensor, place: Tensor) -> None:
        """Put accepted proposals, with what the passes said of them, in the place of the old."""
        b, changed = self.buffers, self._places == place[:, None]
        own, others = taken[:, None] & changed, taken[:, None] & self._inside & ~changed
        self._put_vectors(others, slot)
        put(b.tokens, own, b.drawn)
        put(b.logit, own, b.drawn_logit)
        put(b.logit, others, b.slot_logit[slot])
        put(b.log_normaliser, others, b.slot_normaliser[slot])
        put(b.fresh, taken, ~self._inside)

    def _usable_slots(self) -> Int[Tensor, " chains"]:
        """Return how many slots of each chain may be filled."""
        return torch.full_like(self._rows, self._slots)
