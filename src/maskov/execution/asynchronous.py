"""Chains that each go at their own pace: Metropolis-Hastings as rounds of full batches.

A chain keeps the masked passes of its sequence, so all proposals of its epoch are known at once:
draws that equal the current token are accepted without a test, and the next one that differs is
put to the test in a *lane*. A round takes whatever passes the lanes of all chains wait for, runs
them together, and settles every lane that has what it needs; no chain waits for another. With
several lanes a chain also tests the proposals that come next if the first is rejected. Because
random numbers are keyed by (seed, chain, step), none of this changes what a chain does.

Every operation works on whole tensors and by masks, so that a round has no shape that depends on
its contents; the few places where rows are gathered are methods that a GPU's subclass replaces.
"""

from __future__ import annotations

import torch

from maskov.execution.async_state import NONE_LEFT
from maskov.execution.async_tests import Watched
from maskov.execution.buffers import ACCEPTED, FREE, REJECTED, TESTING
from maskov.execution.pilot import expectations
from maskov.kernels import Sweep, accept
from maskov.moves import draw
from maskov.random import Purpose
from maskov.types import Bool, Float, Int, Tensor


class Flow(Watched):
    """A group of chains between two epochs, advanced round by round."""

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
        self._pass()
        self._decide()
        self._settle()
        offered.fill_(False)

    def _prepare(self) -> None:
        """End and begin epochs, and draw what is to be tested."""
        self._close()
        self._open()
        self._draw()

    # The parts of a round.

    def _close(self) -> None:
        """End the epoch of chains with nothing left to test; keep what it came to."""
        b = self.buffers
        idle = (b.lane_place[:-1] == FREE).view(-1, self._lanes).all(1)
        left = (self._novel() & (b.rank >= b.number[:, None])).any(1)
        ended = self._ready() & idle & ~left
        self._tell_repeated(ended, self._steps)
        rest = torch.where(ended, self._steps - b.number, 0)
        self._count(steps=rest, accepted=rest)
        slot = b.epoch % len(b.ring_tokens)
        for ring, value in (
            (b.ring_energy, self.energies()),
            (b.ring_counts, b.counts),
            (b.ring_tokens, b.tokens),
            (b.ring_rejected, b.rejected),
        ):
            kept = torch.where(ended[:, None], value, ring[slot, self._rows])
            ring.index_put_((slot, self._rows), kept)
        b.step += torch.where(ended, self._steps, 0)
        b.number.masked_fill_(ended, 0)
        b.counts.masked_fill_(ended[:, None], 0)
        b.rejected &= ~ended[:, None]
        b.epoch += ended
        b.opening |= ended

    def _open(self) -> None:
        """Begin an epoch: its order and all its random numbers."""
        b = self.buffers
        begun = b.opening & (b.epoch < self.limit)
        rows = self._rows_of(begun)
        if rows is None:
            return
        chain, step, free = b.chain[rows], b.step[rows], b.free[rows]
        assert isinstance(self.kernel.positions, Sweep)
        rank = self.kernel.positions.rank(chain, step, free, self.draws)
        shape = rank.shape
        when = (step[:, None] + rank).flatten()
        who = chain[:, None].expand(shape).flatten()
        place = self._places.expand(shape).flatten()
        token = self.draws.uniform(who, when, Purpose.TOKEN, place).view(shape)
        tests = [
            self.draws.uniform(who, when, Purpose.ACCEPT, torch.full_like(who, stage)).view(shape)
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
        drawn = draw(
            b.hidden[where], b.tokens[where], b.draw_token[where], self.kernel.proposal, self.engine
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
        """Give each free lane the chain's next proposal that differs."""
        b = self.buffers
        ready, novel = self._ready(), self._novel()
        for lane in range(self._lanes):
            ranks = self._lane_ranks()
            latest = ranks.masked_fill(ranks == NONE_LEFT, -1).amax(1)
            after = torch.maximum(latest, b.number - 1)
            keys = b.rank.masked_fill(~(novel & (b.rank > after[:, None])), NONE_LEFT)
            soonest, place = keys.min(1)
            begun = ready & (ranks[:, lane] == NONE_LEFT) & (soonest < NONE_LEFT)
            # Where the way back is impossible the move is rejected whatever its energy.
            possible = b.log_reverse.gather(1, place[:, None]).squeeze(1) > -torch.inf
            wanted = self._wanted(place, b.lengths, 0) & possible[:, None]
            own = slice(lane, len(b.lane_place) - 1, self._lanes)
            b.lane_place[own] = torch.where(begun, place, b.lane_place[own])
            b.lane_pending[own] = torch.where(begun[:, None], wanted, b.lane_pending[own])
            for field in (b.lane_stage, b.lane_verdict, b.lane_ratio, b.lane_acceptance):
                field[own] = field[own].masked_fill(begun, 0)

    def _pass(self) -> None:
        """Run the passes that lanes wait for."""
        proposed = self._lane_sequences()
        for engine, kind in ((self.low, True), (self.engine, False)):
            lane, place = self._waits(kind).nonzero(as_tuple=True)
            if engine is None or not len(lane):
                continue
            answers = engine.answers(proposed, lane, place, self.kernel.energy.needs_normaliser)
            self._receive(kind, lane, place, answers.hidden, answers.logit, answers.log_normaliser)
            self._count_passes(self._owner[lane], torch.ones_like(lane))

    def _receive(
        self,
        low: bool,
        lane: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        hidden: Float[Tensor, "passes hidden"],
        logit: Float[Tensor, " passes"],
        log_normaliser: Float[Tensor, " passes"],
    ) -> None:
        """Put what the passes gave into their lanes."""
        b = self.buffers
        if low:
            b.lane_low[lane, place] = self.kernel.energy.of_scores(logit, log_normaliser)
        else:
            b.lane_hidden[lane, place] = hidden
            b.lane_logit[lane, place] = logit
            b.lane_normaliser[lane, place] = log_normaliser
        b.lane_pending[lane, place] = torch.zeros_like(lane, dtype=torch.bool)

    def _decide(self) -> None:
        """Test every lane that has what its stage needs."""
        b, owner = self.buffers, self._owner
        busy = (b.lane_place[:-1] != FREE) & (b.lane_verdict[:-1] == TESTING)
        busy &= ~b.lane_pending[:-1].any(1)
        place = b.lane_place[:-1].clamp(min=0)
        lengths, stage = b.lengths[owner], b.lane_stage[:-1]
        found = self._ratios()
        ratio = found.log_ratio.gather(1, stage[:, None]).squeeze(1)
        gained = ratio - b.lane_ratio[:-1]
        uniform = b.draw_accept[owner, place, stage]
        passed = accept(gained, uniform)
        last = stage == len(self.stages) - 1
        if len(b.pilot):
            b.pilot += expectations(
                busy & last, found.log_q, found.site, found.exact, place, lengths, self._width,
                found.temperature,
            )  # fmt: skip
        verdict = torch.where(passed, torch.where(last, ACCEPTED, TESTING), REJECTED)
        b.lane_verdict[:-1] = torch.where(busy, verdict, b.lane_verdict[:-1])
        b.lane_acceptance[:-1] += torch.where(busy, gained.clamp(max=0.0), 0.0)
        further = busy & passed & ~last
        b.lane_ratio[:-1] = torch.where(further, ratio, b.lane_ratio[:-1])
        b.lane_stage[:-1] += further
        for number in range(1, len(self.stages)):
            wanted = self._wanted(place, lengths, number)
            begun = further & (b.lane_stage[:-1] == number)
            b.lane_pending[:-1] = torch.where(begun[:, None], wanted, b.lane_pending[:-1])

    def _settle(self) -> None:
        """Move chains along: past rejected proposals in order, to the first accepted one."""
        b, lanes = self.buffers, self._lanes
        for _ in range(lanes):
            ranks = self._lane_ranks()
            soonest, front = ranks.min(1)
            lane = self._rows * lanes + front
            place = b.lane_place[lane].clamp(min=0)
            verdict = b.lane_verdict[lane]
            settled = (soonest < NONE_LEFT) & (verdict != TESTING)
            taken = settled & (verdict == ACCEPTED)
            skipped = torch.where(settled, soonest - b.number, 0)
            # A draw that equals the current token always has a way back.
            stuck = settled & (b.log_reverse[self._rows, place] == -torch.inf)
            self._count(
                steps=skipped + settled, accepted=skipped + taken, novel=taken * 1,
                proposed_novel=settled * 1, irreversible=stuck * 1,
            )  # fmt: skip
            self._tell_repeated(settled, soonest)
            self._tell_tested(settled, taken, lane, place)
            at = (self._rows, place)
            b.rejected[at] = b.rejected[at] | (settled & ~taken)
            b.number += torch.where(settled, skipped + 1, 0)
            self._move(taken, lane, place)
            # A rejection frees its own lane; a move makes all proposals of the chain void.
            freed = taken[:, None] | (
                settled[:, None] & (front[:, None] == torch.arange(lanes, device=front.device))
            )
            freed = freed.flatten()
            b.lane_place[:-1] = b.lane_place[:-1].masked_fill(freed, FREE)
            b.lane_pending[:-1] &= ~freed[:, None]

    def _move(self, taken: Tensor, lane: Tensor, place: Tensor) -> None:
        """Put accepted proposals, with what the passes said of them, in the place of the old."""
        b = self.buffers
        rows = self._rows_of(taken)
        if rows is None:
            return
        lane, place = lane[rows], place[rows]
        changed = self._places == place[:, None]
        other = self._inside[rows] & ~changed
        new = (
            (b.tokens, torch.where(changed, b.drawn[rows], b.tokens[rows])),
            (b.hidden, torch.where(other[..., None], b.lane_hidden[lane], b.hidden[rows])),
            (b.logit, torch.where(
                changed, b.drawn_logit[rows], torch.where(other, b.lane_logit[lane], b.logit[rows])
            )),
            (b.log_normaliser, torch.where(
                other, b.lane_normaliser[lane], b.log_normaliser[rows]
            )),
            (b.low_term, b.lane_low[lane]),
            (b.fresh, ~self._inside[rows]),
        )  # fmt: skip
        for buffer, value in new:
            self._put_rows(taken, rows, buffer, value)

    # Where rows are gathered; a GPU does these without asking which rows there are.

    def _rows_of(self, chosen: Bool[Tensor, " chains"]) -> Tensor | None:
        rows = chosen.nonzero().flatten()
        return rows if len(rows) else None

    def _stale(self) -> tuple[Tensor, Tensor] | None:
        row, place = self._undrawn().nonzero(as_tuple=True)
        return (row, place) if len(row) else None

    def _put_rows(self, chosen: Tensor, rows: Tensor, buffer: Tensor, value: Tensor) -> None:
        buffer[rows] = value

    def _put_places(self, where: tuple[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
        buffer[where] = value
