"""Rounds of windows: fill, test and move, as `Span.propose` and `Metropolis.step` do.

A chain fills the window of its step one position after the other and then tests the proposal. Every
pass that any chain waits for, to fill or to test, is run in the same round.
"""

from __future__ import annotations

import torch

from maskov.energies.stages import near_all
from maskov.execution.buffers import FILLING, FILLS, IDLE, WindowBuffers
from maskov.execution.rounds import Rounds
from maskov.kernels.base import log_ratio
from maskov.moves import Window
from maskov.moves.filling import draw, log_q_of
from maskov.random import Purpose
from maskov.types import Bool, Float, Int, Tensor


class WindowRounds(Rounds):
    """A group of chains that fill windows."""

    buffers: WindowBuffers

    def _prepare(self) -> None:
        self._fill()
        self._normalise()
        self._close()
        self._open()
        self._begin()

    def _test(self) -> None:
        self._pass()
        self._decide()

    # Epochs.

    def _stale(self) -> Bool[Tensor, "chains length"]:
        """Return where the log-sum-exp is to be found, which an epoch's energies need."""
        b = self.buffers
        ending = ~b.opening & (b.epoch_step >= b.steps)
        return ending[:, None] & self._inside & b.log_normaliser.isnan()

    def _normalise(self) -> None:
        """Find the log-sum-exp of positions of chains that end their epoch."""
        b = self.buffers
        where = self._stale_places()
        if where is None:
            return
        parts = torch.split(b.hidden[where], self.scorer.model.head_rows)
        found = torch.cat([self.scorer.model.logits(part).logsumexp(1).double() for part in parts])
        self.scorer.track_nan(found)
        # What is not a number has been noticed; the chain need not wait for a better one.
        self._put_places(where, b.log_normaliser, found.nan_to_num(torch.inf))

    def _close(self) -> None:
        """End the epoch of chains that have done their steps; keep its results."""
        b = self.buffers
        ended = ~b.opening & (b.epoch_step >= b.steps) & ~self._stale().any(1)
        self._end_epoch(ended)

    def _open(self) -> None:
        """Begin an epoch."""
        b = self.buffers
        b.opening &= b.epoch >= self.limit

    # Proposals.

    def _begin(self) -> None:
        """Draw the window of each chain that begins a step."""
        b = self.buffers
        begun = ~b.opening & (b.stage == IDLE) & (b.epoch_step < b.steps)
        rows = self._rows_of(begun)
        if rows is None:
            return
        step = (b.step + b.epoch_step)[rows]
        assert isinstance(self.kernel.move, Window)
        window = self.kernel.move.window(b.chain[rows], step, b.free[rows], self.rng)
        self._put_rows(begun, rows, b.window, window)
        self._put_rows(begun, rows, b.proposed, b.tokens[rows])
        for field in (b.level, b.log_forward, b.log_reverse, b.ratio):
            field.masked_fill_(begun, 0)
        # A chain without free positions proposes what stands there.
        empty = begun & (b.window < 0).all(1)
        self._end_step(empty, accepted=empty, novel=torch.zeros_like(empty))
        b.stage.masked_fill_(begun & ~empty, FILLING)
        self._ask(begun & ~empty)

    def _next(self) -> tuple[Int[Tensor, " chains"], Bool[Tensor, " chains"]]:
        """Return the position that each window fills next, and whether it is the last."""
        b = self.buffers
        place = (b.window == b.level[:, None]).int().argmax(1)
        return place, b.window.amax(1) == b.level

    def _same(self) -> Bool[Tensor, " chains"]:
        """Return which proposals, where they are filled, are the current tokens."""
        return (self.buffers.proposed == self.buffers.tokens).all(1)

    def _ask(self, chosen: Bool[Tensor, " chains"]) -> None:
        """Wait for the passes that fill the next position.

        One given the new tokens and, if they differ, one given the old ones. The pass that masks
        one position of the old tokens is in the chain's cache.
        """
        b = self.buffers
        _, last = self._next()
        same = self._same()
        wanted = torch.stack([~(same & last), ~same & ~last], dim=1)
        fills = b.slot_pending[:-1, self._width :]
        fills.copy_(torch.where(chosen[:, None], wanted, fills))

    def _fill(self) -> None:
        """Draw the next position of windows that have what they wait for."""
        b = self.buffers
        ready = (b.stage == FILLING) & ~b.slot_pending[:-1].any(1)
        rows = self._rows_to_fill(ready)
        if rows is None:
            return
        place, last = self._next()
        same = self._same()
        own = b.hidden[self._rows, place]
        forward = torch.where((same & last)[:, None], own, b.slot_hidden[:-1, -2])
        backward = torch.where(last[:, None], own, b.slot_hidden[:-1, -1])
        old, chain = b.tokens[self._rows, place][rows], b.chain[rows]
        step, at = (b.step + b.epoch_step)[rows], place[rows]

        def choose(probabilities: Tensor, part: slice) -> Tensor:
            return self.rng.categorical(
                probabilities, chain[part], step[part], Purpose.TOKEN, at[part]
            )

        conditional, scorer = self.kernel.conditional, self.scorer
        drawn = draw(forward[rows], old, choose, conditional, scorer)
        back = log_q_of(backward[rows], old, conditional, scorer)
        reverse = torch.where(same[rows], drawn.log_reverse, back)
        filled, (token, log_forward, log_reverse, logit, normaliser) = self._spread(
            ready, rows, drawn.token, drawn.log_forward, reverse, drawn.logit, drawn.log_normaliser
        )
        here = filled[:, None] & (self._places == place[:, None])
        b.proposed.copy_(torch.where(here, token[:, None], b.proposed))
        b.log_forward += torch.where(filled, log_forward, 0.0)
        b.log_reverse += torch.where(filled, log_reverse, 0.0)
        b.level += filled
        # The last pass masks one position of the proposal alone: it is one of its energy.
        passed = filled & last & ~same
        self._put_known(passed, place, forward, logit, normaliser)
        self._ask(filled & ~last)
        self._begin_tests(filled & last, passed[:, None] & (self._places == place[:, None]))

    def _put_known(
        self,
        chosen: Bool[Tensor, " chains"],
        place: Int[Tensor, " chains"],
        hidden: Float[Tensor, "chains hidden"],
        logit: Float[Tensor, " chains"],
        normaliser: Float[Tensor, " chains"],
    ) -> None:
        """Note a pass of the chosen proposals that needs not be run."""
        b = self.buffers
        row = torch.where(chosen, self._rows, len(self._rows))
        b.slot_hidden[row, place] = hidden
        b.slot_logit[row, place] = logit
        b.slot_normaliser[row, place] = normaliser

    def _begin_tests(
        self, ended: Bool[Tensor, " chains"], passed: Bool[Tensor, "chains length"]
    ) -> None:
        """Begin the tests of windows that are filled, or end their steps if none is needed."""
        b = self.buffers
        changed = b.proposed != b.tokens
        # Where one token changed, the pass that masks it is the same before and after.
        single = changed.sum(1) == 1
        place = changed.int().argmax(1)
        at = (self._rows, place)
        logit = self.scorer.model.logit_of(b.hidden[at], b.proposed[at]).double()
        self.scorer.track_nan(logit, ended & single)
        self._put_known(ended & single, place, b.hidden[at], logit, b.log_normaliser[at])
        missing = self._inside & ~(changed & single[:, None]) & ~passed
        b.missing.copy_(torch.where(ended[:, None], missing, b.missing))
        # Where the reverse is impossible the move is rejected whatever its energy.
        novel, possible = changed.any(1), b.log_reverse > -torch.inf
        tested = ended & novel & possible
        b.stage.masked_fill_(tested, 0)
        self._want(tested, self._near(0, changed))
        self._end_step(ended & ~tested, accepted=ended & ~novel, novel=novel)

    def _near(
        self, number: int, changed: Bool[Tensor, "chains length"]
    ) -> Bool[Tensor, "chains length"]:
        """Return the positions that stage `number` knows."""
        return near_all(changed, self.buffers.lengths, self.stages[number].nearest)

    def _want(self, chosen: Tensor, needed: Bool[Tensor, "chains length"]) -> None:
        """Wait for the passes that a test needs and nobody has run."""
        b = self.buffers
        pending = b.slot_pending[:-1, : self._width]
        pending.copy_(torch.where(chosen[:, None], needed & b.missing, pending))

    # Passes.

    def _queries(
        self, row: Int[Tensor, " passes"], column: Int[Tensor, " passes"]
    ) -> tuple[Int[Tensor, "passes length"], Int[Tensor, " passes"]]:
        """Return tokens and places; passes that fill mask the rest of the window, too."""
        b = self.buffers
        fills, given_old = column >= self._width, column == self._width + FILLS - 1
        place = torch.where(fills, self._next()[0][row], column)
        tokens = torch.where(given_old[:, None], b.tokens[row], b.proposed[row])
        rest = (b.window[row] >= b.level[row][:, None]) & (self._places != place[:, None])
        return tokens.masked_fill(fills[:, None] & rest, self.scorer.model.mask_id), place

    # Decisions.

    def _decide(self) -> None:
        """Test every proposal that has what its stage needs."""
        b = self.buffers
        busy = (b.stage >= 0) & ~b.slot_pending[:-1].any(1)
        rows = self._rows_of(busy)
        if rows is None:
            return
        stage = b.stage[rows].clamp(min=0)
        ratio = self._ratios(rows).gather(1, stage[:, None]).squeeze(1)
        step = (b.step + b.epoch_step)[rows]
        accepted, _ = self.rng.accept(ratio - b.ratio[rows], b.chain[rows], step, stage)
        passed = torch.zeros_like(busy)
        self._put_rows(busy, rows, passed, accepted)
        self._put_rows(busy, rows, b.ratio, ratio)
        last = b.stage == len(self.stages) - 1
        further = passed & ~last
        b.stage += further
        changed = b.proposed != b.tokens
        for number in range(1, len(self.stages)):
            needed = self._near(number, changed) & ~self._near(number - 1, changed)
            self._want(further & (b.stage == number), needed)
        self._move(passed & last)
        self._end_step(busy & ~further, accepted=passed & last, novel=busy)

    def _ratios(self, rows: Int[Tensor, " n"]) -> Float[Tensor, "n stages"]:
        """Return what the tests compare with; meaningless where passes are missing."""
        b, masked, width = self.buffers, self.masked, self._width
        changed, lengths = b.proposed[rows] != b.tokens[rows], b.lengths[rows]
        new = masked.of_scores(b.slot_logit[rows, :width], b.slot_normaliser[rows, :width])
        falls = masked.of_scores(b.logit[rows], b.log_normaliser[rows]) - new
        given = b.log_forward[rows], b.log_reverse[rows], self._temperature()[rows]
        nears = (near_all(changed, lengths, stage.nearest) for stage in self.stages)
        sums = [torch.where(near, falls, 0.0).sum(1) for near in nears]
        return torch.stack([log_ratio(fall, *given) for fall in sums], dim=1)

    def _move(self, taken: Bool[Tensor, " chains"]) -> None:
        """Put accepted proposals, with what the passes said of them, in the place of the old."""
        b, width = self.buffers, self._width
        rows = self._rows_of(taken)
        if rows is None:
            return
        self._put_vectors(taken[:, None] & self._inside, self._rows)
        for buffer, value in (
            (b.tokens, b.proposed[rows]),
            (b.logit, b.slot_logit[rows, :width]),
            (b.log_normaliser, b.slot_normaliser[rows, :width]),
        ):
            self._put_rows(taken, rows, buffer, value)

    def _end_step(self, ended: Tensor, accepted: Tensor, novel: Tensor) -> None:
        """Count the steps of chains whose proposals are decided, and make them idle."""
        b = self.buffers
        stuck = ended & (b.log_reverse == -torch.inf)
        self._count(
            steps=ended, accepted=accepted, novel=accepted & novel, proposed_novel=ended & novel,
            irreversible=stuck,
        )  # fmt: skip
        b.rejected |= (ended & ~accepted)[:, None] & (b.window >= 0)
        b.epoch_step += ended
        b.stage.masked_fill_(ended, IDLE)

    # Where rows are gathered; a GPU does these without asking which rows there are.

    def _rows_to_fill(self, ready: Bool[Tensor, " chains"]) -> Int[Tensor, " n"] | None:
        return self._rows_of(ready)

    def _spread(
        self, ready: Bool[Tensor, " chains"], rows: Tensor, *values: Tensor
    ) -> tuple[Bool[Tensor, " chains"], list[Tensor]]:
        """Return which chains were filled, and values of them in an entry for each chain."""
        return ready, [v.new_zeros(len(ready)).index_copy(0, rows, v) for v in values]
