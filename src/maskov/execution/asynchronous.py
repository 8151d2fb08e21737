"""Asynchronous chains: Metropolis-Hastings as rounds of full, unpadded batches.

Chains cache the masked passes of their sequence, so all proposals of an epoch are known at once:
draws equal to the current token are accepted without a test, and the next one that differs is
tested in a *slot*. A round runs whatever the slots of all chains wait for together and settles
every slot that is complete; no chain waits for another. With several slots a chain also tests the
proposals that come next if the first is rejected. Because random numbers are keyed by (seed, chain,
step), none of this changes the decisions: they are those of `Metropolis.step`.

Every operation works on whole tensors and by masks, so that a round has no shape that depends on
its contents; the few places where rows are gathered are methods that `cuda_graphs.py` replaces.
"""

from __future__ import annotations

import torch

from maskov.execution.async_state import NONE_LEFT
from maskov.execution.async_tests import AsyncTests
from maskov.execution.buffers import ACCEPTED, FREE, REJECTED, TESTING
from maskov.moves.filling import draw
from maskov.random import Purpose, accept, categorical
from maskov.types import Float, Int, Tensor


class AsyncSampler(AsyncTests):
    """A group of asynchronous chains, advanced round by round."""

    def advance(self) -> None:
        """Do one round, or finish one that was stopped while its passes ran.

        To prepare twice would let some chains run ahead: the same chains, but other batches, and
        batches round.
        """
        offered = self.buffers.offered
        if not bool(offered):
            self._prepare()
            self._offer()
            offered.fill_(True)
        self._test()
        offered.fill_(False)

    def _prepare(self) -> None:
        """End and begin epochs, and draw what is to be tested."""
        self._close()
        self._open()
        self._draw()

    def _test(self) -> None:
        """Run passes and settle what they decide."""
        self._pass()
        self._decide()
        self._settle()

    # The parts of a round.

    def _close(self) -> None:
        """End the epoch of chains with nothing left to test; keep its results."""
        b = self.buffers
        idle = (b.slot_place[:-1] == FREE).view(-1, self._slots).all(1)
        left = (self._novel() & (b.rank >= b.epoch_step[:, None])).any(1)
        ended = self._ready() & idle & ~left
        self._tell_repeated(ended, b.epoch_step, self._steps)
        rest = torch.where(ended, self._steps - b.epoch_step, 0)
        self._count(steps=rest, accepted=rest)
        self._end_epoch(ended, self._steps)

    def _open(self) -> None:
        """Begin an epoch: its order and all its random numbers."""
        b = self.buffers
        begun = b.opening & (b.epoch < self.limit)
        rows = self._rows_of(begun)
        if rows is None:
            return
        chain, step, free = b.chain[rows], b.step[rows], b.free[rows]
        rank = self.kernel.move.rank(chain, step, free, self.rng)
        shape = rank.shape
        when = (step[:, None] + rank).flatten()
        who = chain[:, None].expand(shape).flatten()
        place = self._places.expand(shape).flatten()
        token = self.rng.uniform(who, when, Purpose.TOKEN, place).view(shape)
        tests = [
            self.rng.uniform(who, when, Purpose.ACCEPT, torch.full_like(who, stage)).view(shape)
            for stage in range(len(self.stages))
        ]
        self._put_rows(begun, rows, b.rank, rank)
        self._put_rows(begun, rows, b.draw_token, token)
        self._put_rows(begun, rows, b.draw_accept, torch.stack(tests, dim=2))
        self._put_rows(begun, rows, b.fresh, ~self._inside[rows])
        self._put_rows(begun, rows, b.opening, torch.zeros_like(step, dtype=torch.bool))

    def _draw(self) -> None:
        """Draw the proposals of chains that have moved or begun an epoch."""
        b = self.buffers
        where = self._stale()
        if where is None:
            return
        uniform = b.draw_token[where]
        drawn = draw(
            b.hidden[where],
            b.tokens[where],
            lambda probabilities, part: categorical(probabilities, uniform[part]),
            self.kernel.conditional,
            self.scorer,
        )
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

    def _offer(self) -> None:
        """Give the free slots of each chain its next proposals that differ, in order."""
        b, slots = self.buffers, self._slots
        ranks = self._slot_ranks()
        free = ranks == NONE_LEFT
        latest = ranks.masked_fill(free, -1).amax(1)
        after = torch.maximum(latest, b.epoch_step - 1)
        later = self._novel() & (b.rank > after[:, None])
        soonest, place = _smallest(b.rank.masked_fill(~later, NONE_LEFT), slots)
        # The first free slot gets the first of them, and so on.
        turn = free.cumsum(1) - 1
        given = turn.clamp(min=0)
        soonest, place = soonest.gather(1, given), place.gather(1, given)
        most = self._usable_slots()
        if most is not None:
            free = free & (turn + (~free).sum(1, keepdim=True) < most[:, None])
        begun = (self._ready()[:, None] & free & (soonest < NONE_LEFT)).flatten()
        # Where the reverse is impossible the move is rejected whatever its energy.
        possible = b.log_reverse.gather(1, place).flatten() > -torch.inf
        place = place.flatten()
        nearness = self._nearness(place, b.lengths[self._owner])
        wanted = self._wanted(nearness, 0) & possible[:, None]
        b.slot_place[:-1] = torch.where(begun, place, b.slot_place[:-1])
        b.slot_pending[:-1] = torch.where(begun[:, None], wanted, b.slot_pending[:-1])
        for field in (b.slot_stage, b.slot_verdict, b.slot_ratio, b.slot_acceptance):
            field[:-1] = field[:-1].masked_fill(begun, 0)

    def _pass(self) -> None:
        """Run the passes that slots wait for."""
        slot, place = self.buffers.slot_pending[:-1].nonzero(as_tuple=True)
        if not len(slot):
            return
        answers = self.scorer.answers(
            self._slot_sequences(), slot, place, self.masked.needs_normaliser
        )
        self._receive(slot, place, answers.hidden, answers.logit, answers.log_normaliser)
        self._count_passes(self._owner[slot], torch.ones_like(slot))

    def _receive(
        self,
        slot: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        hidden: Float[Tensor, "passes hidden"],
        logit: Float[Tensor, " passes"],
        log_normaliser: Float[Tensor, " passes"],
    ) -> None:
        """Put what the passes gave into their slots."""
        b = self.buffers
        b.slot_hidden[slot, place] = hidden
        b.slot_logit[slot, place] = logit
        b.slot_normaliser[slot, place] = log_normaliser
        b.slot_pending[slot, place] = torch.zeros_like(slot, dtype=torch.bool)

    def _decide(self) -> None:
        """Test every slot that has what its stage needs."""
        b, owner = self.buffers, self._owner
        busy = (b.slot_place[:-1] != FREE) & (b.slot_verdict[:-1] == TESTING)
        busy &= ~b.slot_pending[:-1].any(1)
        place = b.slot_place[:-1].clamp(min=0)
        nearness, stage = self._nearness(place, b.lengths[owner]), b.slot_stage[:-1]
        found = self._ratios(nearness)
        ratio = found.log_ratio.gather(1, stage[:, None]).squeeze(1)
        gained = ratio - b.slot_ratio[:-1]
        uniform = b.draw_accept[owner, place, stage]
        passed = accept(gained, uniform)
        last = stage == len(self.stages) - 1
        verdict = torch.where(passed, torch.where(last, ACCEPTED, TESTING), REJECTED)
        b.slot_verdict[:-1] = torch.where(busy, verdict, b.slot_verdict[:-1])
        b.slot_acceptance[:-1] += torch.where(busy, gained.clamp(max=0.0), 0.0)
        further = busy & passed & ~last
        b.slot_ratio[:-1] = torch.where(further, ratio, b.slot_ratio[:-1])
        b.slot_stage[:-1] += further
        for number in range(1, len(self.stages)):
            wanted = self._wanted(nearness, number)
            begun = further & (b.slot_stage[:-1] == number)
            b.slot_pending[:-1] = torch.where(begun[:, None], wanted, b.slot_pending[:-1])

    def _settle(self) -> None:
        """Move chains along: past rejected proposals in order, to the first accepted one."""
        b, slots = self.buffers, self._slots
        rank, front = _in_order(self._slot_ranks())
        slot = self._rows[:, None] * slots + front
        place = b.slot_place[slot].clamp(min=0)
        verdict = b.slot_verdict[slot]
        done = (rank < NONE_LEFT) & (verdict != TESTING)
        passed = done & (verdict == ACCEPTED)
        # What comes after an acceptance, or after an open test, is not settled.
        settled = (done & (passed.cumsum(1) == passed)).long().cumprod(1).bool()
        taken = settled & passed
        self._tell_settled(settled, taken, rank, slot, place)
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
        b = self.buffers
        rows = self._rows_of(taken)
        if rows is None:
            return
        moved = taken[:, None] & self._inside & (self._places != place[:, None])
        self._put_vectors(moved, slot, b.slot_hidden)
        slot, place = slot[rows], place[rows]
        changed = self._places == place[:, None]
        other = self._inside[rows] & ~changed
        new = (
            (b.tokens, torch.where(changed, b.drawn[rows], b.tokens[rows])),
            (b.logit, torch.where(
                changed, b.drawn_logit[rows], torch.where(other, b.slot_logit[slot], b.logit[rows])
            )),
            (b.log_normaliser, torch.where(
                other, b.slot_normaliser[slot], b.log_normaliser[rows]
            )),
            (b.fresh, ~self._inside[rows]),
        )  # fmt: skip
        for buffer, value in new:
            self._put_rows(taken, rows, buffer, value)

    def _usable_slots(self) -> Int[Tensor, " chains"] | None:
        """Return how many slots of each chain may be filled; None: all of them."""
        return None

    # Where rows are gathered; a GPU does these without asking which rows there are.

    def _stale(self) -> tuple[Tensor, Tensor] | None:
        row, place = self._undrawn().nonzero(as_tuple=True)
        return (row, place) if len(row) else None

    def _put_places(self, where: tuple[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
        buffer[where] = value


def _smallest(
    keys: Int[Tensor, "chains length"], count: int
) -> tuple[Int[Tensor, "chains count"], Int[Tensor, "chains count"]]:
    """Return the smallest keys of each row, in order, and where they are."""
    if count == 1:
        return keys.min(1, keepdim=True)
    return keys.topk(count, largest=False, sorted=True)


def _in_order(
    ranks: Int[Tensor, "chains slots"],
) -> tuple[Int[Tensor, "chains slots"], Int[Tensor, "chains slots"]]:
    """Sort the slots of each chain by the steps they test."""
    if ranks.shape[1] == 1:
        return ranks, torch.zeros_like(ranks)
    return ranks.sort(1)
