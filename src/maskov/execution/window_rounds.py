"""Rounds of windows: fill, test and move, as `Filling` and `Metropolis.step` do.

A chain draws the window of its step, fills it, one rank of positions after the other, and then
tests the proposal. Spans, blocks, single sites and windows that change their size are all windows,
and a mixture draws which of them a step has. Every pass that any chain waits for, to fill or to
test, is run in the same round. A window of one position is filled from the chain's own passes.

Ordered energies have a pass for each rank of their order; a test waits for those from the first
changed place on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from maskov.energies.base import Energy, MaskedEnergy, evaluated
from maskov.energies.ordered import Ordered
from maskov.energies.stages import near_all, near_window
from maskov.execution.buffers import COUNTS, FILLING, FILLS, IDLE, WindowBuffers, sizes_of
from maskov.execution.rounds import Asked, Rounds, put
from maskov.kernels import Mixture
from maskov.kernels.base import Kernel, leaves, log_ratio
from maskov.models.base import MaskedModel
from maskov.moves import Move, Resize, Site, Sweep, Window
from maskov.moves.filling import draw, log_q_of
from maskov.random import Purpose
from maskov.types import (
    Bool,
    Chains,
    Float,
    Int,
    PartValues,
    Sequences,
    Tensor,
    groups_with,
    masked_with,
    positions_of,
    unseen,
)

# How often a round begins and fills steps where single sites are among the moves: these need no
# pass, and what repeats the token is over at once.
_LOOKAHEAD = 2


# The fields of chains that moves look at.
_SEEN = (
    "tokens", "chain", "lengths", "free", "source", "epoch_step", "rank", "region", "bounds",
)  # fmt: skip


class WindowRounds(Rounds):
    """A group of chains that fill windows."""

    buffers: WindowBuffers
    _moved = ("tokens", "lengths", "free", "region")

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        kernel, width, device = self.kernel, self._width, self.buffers.tokens.device
        # Used for the fields that moves do not look at.
        self._like = Chains.at(self.buffers.tokens)
        self._groups = self.energy.groups
        self._sites = min(self._groups or width, width)
        self._resizes = any(isinstance(move, Resize) for move in self._moves)
        # Single sites and blocks read nothing back: what they draw from is the same both ways.
        self._reads_back = not all(isinstance(move, Site) for move in self._moves)
        self._turns = _LOOKAHEAD if any(map(single_site, self._moves)) else 1
        # Whether the ends of epochs need what the energy does not.
        self._normalises = self._groups is None and not self.masked.needs_normaliser
        # The columns of the parts of the energy by their kind, and their weights.
        parts = list(enumerate(part for _, part in self.energy.parts))
        self._sums = [(column, part) for column, part in parts if isinstance(part, MaskedEnergy)]
        self._ordered = [(column, part) for column, part in parts if isinstance(part, Ordered)]
        self._orders = orders_of(self.energy)
        self._weights = torch.zeros(len(parts), dtype=torch.float64, device=device)
        self.weigh(self.energy)
        if isinstance(kernel, Mixture):
            self._chances = kernel.chances(device)
        # The size of each move's blocks in each epoch; 1 for other moves.
        blocks = [[_block(part) for part in leaves(one)] for one in self.kernels]
        blocks = [row if len(row) == len(self._moves) else [1] * len(self._moves) for row in blocks]
        self._blocks = torch.tensor(blocks, device=device)
        self._block_varies = any(row != blocks[0] for row in blocks)
        # The most positions that change and that one pass masks.
        self._alike = 1 if self._groups is None else -(-width // min(self._groups, width))
        self.largest_block = min(width, max(map(max, blocks)))
        self.most_wanted = max(self._alike, self.largest_block)

    def weigh(self, energy: Energy) -> None:
        """Let the parts of the energy have the weights of another one with the same parts."""
        weights = [weight for weight, _ in energy.parts]
        self._weights.copy_(torch.tensor(weights, dtype=torch.float64))

    def _prepare(self) -> None:
        """Begin the steps of chains that have none under way, and fill what can be filled.

        In this order: a window of one position is filled, and waits for its test, at once.
        """
        if self._normalises:
            self._normalise()
        self._close()
        self._open()
        for _ in range(self._turns):
            self._begin()
            self._fill()
            if self.stages[0].nearest == 0:
                self._decide()  # the first test needs no pass
                self._begin()

    def _test(self) -> None:
        self._pass()
        self._decide()

    # Epochs.

    def _target_energy(self) -> Float[Tensor, " chains"]:
        return (self._values() * self._weights).sum(1)

    def _values(self) -> Float[Tensor, "chains parts"]:
        """Return the values of all parts of the energy."""
        b = self.buffers
        values = b.values[self._rows, b.lengths]
        for column, part in self._sums:
            values[:, column] = self._sum_of(part)
        for number, (column, _) in enumerate(self._ordered):
            values[:, column] = b.terms[:, number].sum(1)
        return values

    def state(self, like: Chains) -> Chains:
        """Return the chains as they stand, with what ordered energies remember of them."""
        found = super().state(like)
        if not self._ordered:
            return found
        values = self._values()
        remembered = torch.cat([values, self.buffers.terms.flatten(1)], dim=1)
        known = PartValues(self.energy, remembered, (values * self._weights).sum(1))
        return replace(found, part_values=known)

    def _results(self) -> dict[str, Tensor]:
        b = self.buffers
        return super()._results() | {"lengths": b.lengths, "sizes": sizes_of(b.region, b.bounds)}

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
        found = self.scorer.log_normalisers(b.hidden[where])
        # What is not a number has been noticed; the chain need not wait for a better one.
        self._put_places(where, b.log_normaliser, found.nan_to_num(torch.inf))

    def _close(self) -> None:
        """End the epoch of chains that have done their steps; keep its results."""
        b = self.buffers
        ended = ~b.opening & (b.epoch_step >= b.steps)
        if self._normalises:
            ended &= ~self._stale().any(1)
        self._end_epoch(ended)

    def _open(self) -> Bool[Tensor, " chains"]:
        """Begin an epoch, with the size of its blocks, too."""
        b, begun = self.buffers, super()._open()
        if isinstance(self._moves[0], Site) and self._block_varies:
            block = self._blocks[self._epoch(), 0]
            put(b.steps, begun, (b.visits + block - 1) // block)
        return begun

    # Proposals.

    def _chains(self) -> Chains:
        """Return the chains as moves know them."""
        b = self.buffers
        kept: dict[str, Any] = {name: getattr(b, name) for name in _SEEN}
        return replace(self._like, step=b.step + b.epoch_step, **kept)

    def _begin(self) -> None:
        """Draw the window of each chain that begins a step."""
        b = self.buffers
        begun = ~b.opening & (b.stage == IDLE) & (b.epoch_step < b.steps)
        proposed = self._draw_windows(self._chains(), self._blocks[self._epoch()])
        for name, value in proposed.items():
            put(getattr(b, name), begun, value)
        for field in (b.level, b.log_forward, b.log_reverse, b.ratio):
            field.masked_fill_(begun, 0)
        put(b.missing, begun, self._within(b.new_lengths))
        b.stage.masked_fill_(begun, FILLING)
        self._ask(begun)

    def _draw_windows(
        self, chains: Chains, blocks: Int[Tensor, "chains moves"]
    ) -> dict[str, Int[Tensor, "chains ..."]]:
        """Return the fields of the buffers that say which window each chain fills."""
        chosen, *others = (
            self._window(move, chains, blocks[:, number]) for number, move in enumerate(self._moves)
        )
        if others:
            chances = self._chances.expand(len(chains.chain), -1)
            which = self.rng.categorical(chances, chains.chain, chains.step, Purpose.KERNEL)
        for number, other in enumerate(others, 1):
            for name, value in other.items():
                here = (which == number).view(-1, *(1,) * (value.dim() - 1))
                chosen[name] = torch.where(here, value, chosen[name])
        return chosen

    def _window(
        self, move: Move, chains: Chains, block: Int[Tensor, " chains"]
    ) -> dict[str, Int[Tensor, "chains ..."]]:
        """Return what `_draw_windows` does of one move."""
        if isinstance(move, Resize):
            old, new, resized = move.windows(chains, self.scorer.model.mask_id, self.rng)
            return {
                "window": new.rank, "old_window": old, "proposed": new.tokens,
                "new_lengths": new.lengths, "new_free": resized.free,
                "new_region": resized.region, "start": resized.start,
            }  # fmt: skip
        if isinstance(move, Window):
            rank = move.window(chains.chain, chains.step, chains.free, self.rng)
        else:
            assert isinstance(move, Site)
            assert isinstance(move.positions, Sweep)
            rank = move.positions.masked(chains, self._rows, self.rng, block).long() - 1
        window = {"window": rank, "old_window": rank, "proposed": chains.tokens}
        # Where no move resizes, nothing else ever changes.
        return window if not self._resizes else window | {
            "new_lengths": chains.lengths, "new_free": chains.free, "new_region": chains.region,
            "start": torch.full_like(chains.chain, -1),
        }  # fmt: skip

    def _last(self, window: Int[Tensor, "chains length"]) -> Bool[Tensor, " chains"]:
        """Return which windows have one position left to fill."""
        return (window >= self.buffers.level[:, None]).sum(1) == 1

    def _same(self) -> Bool[Tensor, " chains"]:
        """Return which proposals, where they are filled, are the current tokens."""
        b = self.buffers
        same = (b.proposed == b.tokens).all(1)
        return (b.start < 0) & same if self._resizes else same

    def _last_place(self) -> Bool[Tensor, "chains length"]:
        """Return what the passes mask that fill last positions: what those of the cache do."""
        b = self.buffers
        place = (b.window == b.level[:, None]).int().argmax(1)
        if self._groups is None:
            return self._places == place[:, None]
        whole = masked_with(place, self._within(b.new_lengths), self._groups)
        if not self._resizes:
            return whole
        # Groups of positions are others once positions have moved.
        return torch.where((b.start < 0)[:, None], whole, self._places == place[:, None])

    def _kept_back(self, last: Bool[Tensor, " chains"]) -> Bool[Tensor, " chains"]:
        """Return where the old token is read in a pass of the cache: it is the `last`, alone."""
        return last if self._groups is None else last & (self.buffers.start < 0)

    def _ask(self, chosen: Bool[Tensor, " chains"]) -> None:
        """Wait for the passes that fill the next positions.

        One given the new tokens and, where they differ, one given the old ones. The pass that masks
        the last position of the old tokens is in the chain's cache.
        """
        b = self.buffers
        same, last = self._same(), self._last(b.window)
        here = (b.window == b.level[:, None]).any(1)
        fills, reads = here & ~(same & last), torch.zeros_like(here)
        if self._resizes:
            here, last = (b.old_window == b.level[:, None]).any(1), self._last(b.old_window)
        if self._reads_back:
            reads = here & ~(same | self._kept_back(last))
        put(b.slot_pending[:-1, -FILLS:], chosen, torch.stack([fills, reads], dim=1))

    def _fill(self) -> None:
        """Draw the next positions of windows that have what they wait for."""
        b = self.buffers
        ready = (b.stage == FILLING) & ~b.slot_pending[:-1].any(1)
        at = b.window == b.level[:, None]
        found = self._places_to_fill(ready, at)
        if found is None:
            return
        filled, row, place = found
        here, same, last = filled[:, None] & at, self._same(), self._last(b.window)
        own = (same & last)[row]
        hidden = torch.where(own[:, None], b.hidden[row, place], b.slot_hidden[row, place])
        keys = b.chain[row], (b.step + b.epoch_step)[row], place
        if len(row):
            current = b.tokens[row, place]
            drawn = draw(hidden, current, self.rng, keys, self.kernel.conditional, self.scorer)
            token, forward, reverse, logit, normaliser = self._spread(
                here, row, place, drawn.token, drawn.log_forward, drawn.log_reverse, drawn.logit,
                drawn.log_normaliser,
            )  # fmt: skip
            b.log_forward += torch.where(here, forward, 0.0).sum(1)
            b.log_reverse += torch.where(here & same[:, None], reverse, 0.0).sum(1)
            put(b.slot_logit[:-1, :-1], here, logit)
            put(b.slot_normaliser[:-1, :-1], here, normaliser)
            put(b.proposed, here, token)
        if self._reads_back:
            self._read_back(filled & ~same)
        # The last pass masks what one of the proposal's energy does: it is one of these.
        passed = (here.any(1) & last & ~same)[:, None] & self._last_place()
        if self._groups is not None and self._resizes:
            passed &= (b.start < 0)[:, None]
        b.missing &= ~passed
        b.level += filled
        longer = torch.maximum(b.window, b.old_window) if self._resizes else b.window
        most = longer.amax(1)
        self._ask(filled & (b.level <= most))
        self._begin_tests(filled & (b.level > most))

    def _read_back(self, chosen: Bool[Tensor, " chains"]) -> None:
        """Add log q of the next old token where the new ones differ, as the reverse draws it."""
        b = self.buffers
        at = b.old_window == b.level[:, None]
        read, rows = chosen & at.any(1), self._filled_rows
        place = at.int().argmax(1)[rows]
        kept = self._kept_back(self._last(b.old_window))[rows]
        own = b.hidden[rows, place]
        hidden = torch.where(kept[:, None], own, b.slot_hidden[rows, -1])
        token = b.tokens[rows, place]
        found = log_q_of(hidden, token, self.kernel.conditional, self.scorer)
        b.log_reverse += torch.where(read, self._spread_rows(found), 0.0)

    def _begin_tests(self, ended: Bool[Tensor, " chains"]) -> None:
        """Begin the tests of windows that are filled, or end their steps if none is needed."""
        b = self.buffers
        changed = self._changed()
        # Where one pass masks all changes, it is the same before and after.
        still = unseen(changed, self._groups)
        if self._resizes:
            still = still & (b.new_lengths == b.lengths)[:, None]
        alike = still & changed
        place = alike.int().topk(self._alike, dim=1).indices
        known = alike.gather(1, place) & ended[:, None]
        token = torch.where(known, b.proposed.gather(1, place), 0).flatten()
        hidden = b.hidden[self._rows[:, None], place].flatten(0, 1)
        logit = self.scorer.model.logit_of(hidden, token).double().view(place.shape)
        self.scorer.track_nan(logit, known)
        own = b.logit.scatter(1, place, torch.where(known, logit, b.logit.gather(1, place)))
        here = ended[:, None] & still
        put(b.slot_logit[:-1, :-1], here, own)
        put(b.slot_normaliser[:-1, :-1], here, b.log_normaliser)
        put(b.still, ended, still)
        if self._ordered:
            put(b.slot_terms[:-1], ended, b.terms)
        b.missing &= ~here
        put(b.known_from, ended, self._first_tests())
        # Where the reverse is impossible the move is rejected whatever its energy.
        novel, possible = (b.proposed != b.tokens).any(1), b.log_reverse > -torch.inf
        tested = ended & novel & possible
        b.stage.masked_fill_(tested, 0)
        self._want(tested, 0)
        self._end_step(ended & ~tested, accepted=ended & ~novel, novel=novel)

    # Tests.

    def _changed(self) -> Bool[Tensor, "chains length"]:
        """Return where tokens are others or, where the length may change, the new windows."""
        b = self.buffers
        changed = b.proposed != b.tokens
        if not self._resizes:
            return changed
        return torch.where((b.start < 0)[:, None], changed, b.window >= 0)

    def _first_tests(self) -> Int[Tensor, "chains length"]:
        """Return the first stage that knows each position."""
        b = self.buffers
        within, fixed = self._within(b.new_lengths), (b.start < 0)[:, None]
        counts = [stage.nearest for stage in self.stages if stage.nearest is not None]
        unknown = [~within] * (len(self.stages) - len(counts))
        if any(counts):
            nearer = near_all(b.proposed != b.tokens, b.new_lengths)
        if any(counts) and self._resizes:
            size = (b.window >= 0).sum(1)
            window = near_window(b.start, size, b.new_lengths, self._width)
            nearer = torch.where(fixed, nearer, window)
        for count in counts:
            near = nearer < count if count else self._changed()
            if self._groups is not None:
                # The groups that hold one of them are known as a whole.
                near = torch.where(fixed, self._whole(near) & within, near)
            unknown.append(~near)
        return torch.stack(unknown).sum(0)

    def _whole(self, marked: Bool[Tensor, "n length"]) -> Bool[Tensor, "n length"]:
        """Mark the positions whose passes mask a marked one."""
        return positions_of(groups_with(marked, self._groups), self._width)

    def _want(self, chosen: Tensor, number: int) -> None:
        """Wait for the passes that a stage is the first to need, and nobody has run."""
        b, passless = self.buffers, [stage.nearest == 0 for stage in self.stages]
        wanted = groups_with(b.missing, self._groups)
        known = (b.known_from <= number) & (not passless[number])
        wanted = wanted & groups_with(known, self._groups)
        # What a test with passes knows has been run; a test without any leaves all of them to run.
        if number and not passless[number - 1]:
            wanted &= ~groups_with(b.known_from < number, self._groups)
        put(b.slot_pending[:-1, : self._sites], chosen, wanted)
        calls = b.counts[:, len(COUNTS) :]
        for part, _, energy in self.plan.new_evaluations(number):
            if part < calls.shape[1]:
                calls[:, part] += chosen
            if isinstance(energy, Ordered):
                self._want_terms(chosen, energy)

    def _want_terms(self, chosen: Bool[Tensor, " chains"], energy: Ordered) -> None:
        """Wait for the terms of an ordered energy from the first changed place on."""
        b, order = self.buffers, self._order(energy)
        begin = self._sites + order * self._width
        pending, rank = b.slot_pending[:-1, begin : begin + self._width], b.reveal[:, order]
        changed = (b.proposed != b.tokens) & (rank >= 0)
        first = rank.masked_fill(~changed, self._width).amin(1, keepdim=True)
        wanted = (self._places >= first) & (self._places <= rank.amax(1, keepdim=True))
        pending |= chosen[:, None] & wanted

    def _order(self, energy: Ordered) -> int:
        """Return the number of an energy's order; those that differ in temperature share one."""
        return self._orders.index(replace(energy, temperature=1.0))

    def _revealing(self, column: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Return which passes ask for terms of ordered energies."""
        return (column >= self._sites) & (column < self._sites + len(self._orders) * self._width)

    def _keep_terms(
        self,
        slot: Int[Tensor, " queries"],
        column: Int[Tensor, " queries"],
        place: Int[Tensor, " queries"],
        hidden: Float[Tensor, "queries hidden"],
        token: Int[Tensor, " queries"],
        valid: Bool[Tensor, " queries"],
    ) -> Bool[Tensor, " queries"]:
        if not self._ordered:
            return valid
        b, order = self.buffers, (column - self._sites) // self._width
        asks, nobody = valid & self._revealing(column), len(self.buffers.slot_pending) - 1
        token = torch.where(asks, token, 0)
        for number, (_, part) in enumerate(self._ordered):
            here = asks & (order == self._order(part))
            found = self.scorer.log_shares(hidden, token, part.temperature, here)
            b.slot_terms[torch.where(here, slot, nobody), number, place] = -found
        return valid & ~asks

    def _queries(self, slot: Int[Tensor, " passes"], column: Int[Tensor, " passes"]) -> Asked:
        """Return what passes ask; those that fill mask the rest of the window, too."""
        b, count = self.buffers, self.buffers.slot_pending.shape[1] - FILLS
        fills, back = (column == count)[:, None], column == count + 1
        lengths = torch.where(back, b.lengths[slot], b.new_lengths[slot])
        held, level = self._within(lengths), b.level[slot][:, None]
        rank = torch.where(back[:, None], b.old_window[slot], b.window[slot])
        group = masked_with(column, held, self._groups)
        last = fills & self._last(b.window)[slot][:, None]
        group = torch.where(last, self._last_place()[slot], group)
        filling = (fills | back[:, None]) & ~last
        masked = torch.where(filling, rank >= level, group)
        wanted = torch.where(filling, rank == level, group)
        tokens = torch.where(back[:, None], b.tokens[slot], b.proposed[slot])
        if self._ordered:
            revealing = self._revealing(column)[:, None]
            index = (column - self._sites).clamp(0, b.reveal[0].numel() - 1)
            order, number = b.reveal[slot, index // self._width], index[:, None] % self._width
            masked = torch.where(revealing, order >= number, masked)
            wanted = torch.where(revealing, order == number, wanted)
            filling |= revealing
        # What is filled is not known yet; the rest of its group is.
        scored = wanted & ~filling & ~(last & (rank == level))
        return Asked(
            tokens.masked_fill(masked, self.scorer.model.mask_id), lengths, wanted, tokens, scored,
            back,
        )  # fmt: skip

    def _decide(self) -> None:
        """Test every proposal that has what its stage needs."""
        b = self.buffers
        busy = (b.stage >= 0) & ~b.slot_pending[:-1].any(1)
        stage = b.stage.clamp(min=0)
        ratio = self._ratios(stage)
        step = b.step + b.epoch_step
        passed = busy & self.rng.accept(ratio - b.ratio, b.chain, step, stage)[0]
        put(b.ratio, busy, ratio)
        last = b.stage == len(self.stages) - 1
        further = passed & ~last
        b.stage += further
        for number in range(1, len(self.stages)):
            self._want(further & (b.stage == number), number)
        self._move(passed & last)
        self._end_step(busy & ~further, accepted=passed & last, novel=busy)

    def _ratios(self, stage: Int[Tensor, " chains"]) -> Float[Tensor, " chains"]:
        """Return what each test compares with; meaningless where passes are missing."""
        b = self.buffers
        old = self._weighed(b.logit, b.log_normaliser)
        new = self._weighed(b.slot_logit[:-1, :-1], b.slot_normaliser[:-1, :-1])
        before, gone, alone = self._shifted(old) if self._resizes else (old, None, None)
        falls, temperature = before - new, self._temperatures[self._epoch()]
        known_old, known_new = (
            b.values[self._rows, lengths] for lengths in (b.lengths, b.new_lengths)
        )
        for number, (column, _) in enumerate(self._ordered):
            known_old[:, column] = b.terms[:, number].sum(1)
            known_new[:, column] = b.slot_terms[:-1, number].sum(1)
        known = b.known_from <= stage[:, None]
        # The first tests may need no pass.
        passless = stage < sum(one.nearest == 0 for one in self.stages)
        if self.stages[0].nearest == 0:
            known &= ~(passless[:, None] & b.missing)
        fall = torch.where(known, falls, 0.0).sum(1)
        if gone is not None and alone is not None:
            fall = torch.where(alone | ~passless, fall + gone, 0.0)
        if self.plan.others:
            drops = [self.plan.other_drop(one, known_old, known_new, self._weights)
                     for one in self.stages]  # fmt: skip
            fall = fall + torch.stack(drops, dim=1).gather(1, stage[:, None]).squeeze(1)
        return log_ratio(fall, b.log_forward, b.log_reverse, temperature)

    def _weighed(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return the terms of the masked passes, with the weights of their parts."""
        terms = [
            self._weights[column] * part.of_scores(logit, log_normaliser)
            for column, part in self._sums
        ]
        return torch.stack(terms).sum(0)

    def _shifted(
        self, terms: Float[Tensor, "chains length"]
    ) -> tuple[Float[Tensor, "chains length"], Float[Tensor, " chains"], Bool[Tensor, " chains"]]:
        """Return the old terms where positions are now, and those that are gone, summed up.

        Also, whether a test without passes may know what has changed: a window of several positions
        that gives way to one of another size is known one way only.
        """
        b = self.buffers
        resized = b.start >= 0
        removed = (b.old_window >= 0) & resized[:, None]
        new, old = (b.window >= 0).sum(1), removed.sum(1)
        after = self._places >= (b.start + new)[:, None]
        shift = torch.where(after & resized[:, None], (old - new)[:, None], 0)
        within = self._within(b.new_lengths)
        fresh = resized[:, None] & (b.window >= 0)
        before = terms.gather(1, (self._places + shift).clamp(0, self._width - 1))
        before = torch.where(within & ~fresh, before, 0.0)
        gone = torch.where(removed, terms, 0.0).sum(1)
        single = (torch.maximum(new, old) <= 1) & (self._groups is None)
        return before, gone, single | ~resized

    def _move(self, taken: Bool[Tensor, " chains"]) -> None:
        """Put accepted proposals, with what the passes said of them, in the place of the old."""
        b = self.buffers
        self._put_vectors(taken[:, None] & self._within(b.new_lengths) & ~b.still, self._rows)
        moved = [
            (b.tokens, b.proposed),
            (b.logit, b.slot_logit[:-1, :-1]),
            (b.log_normaliser, b.slot_normaliser[:-1, :-1]),
        ]
        if self._resizes:
            moved += [(b.lengths, b.new_lengths), (b.free, b.new_free), (b.region, b.new_region)]
        if self._ordered:
            moved.append((b.terms, b.slot_terms[:-1]))
        for buffer, value in moved:
            put(buffer, taken, value)

    def _end_step(self, ended: Tensor, accepted: Tensor, novel: Tensor) -> None:
        """Count the steps of chains whose proposals are decided, and make them idle."""
        b = self.buffers
        stuck = ended & (b.log_reverse == -torch.inf)
        self._count(
            steps=ended, accepted=accepted, novel=accepted & novel, proposed_novel=ended & novel,
            irreversible=stuck,
        )  # fmt: skip
        b.rejected |= (ended & ~accepted)[:, None] & (b.old_window >= 0)
        b.epoch_step += ended
        b.stage.masked_fill_(ended, IDLE)

    # Where rows are gathered; a GPU does these without asking which rows there are.

    def _places_to_fill(
        self, ready: Bool[Tensor, " chains"], at: Bool[Tensor, "chains length"]
    ) -> tuple[Bool[Tensor, " chains"], Tensor, Tensor] | None:
        """Return the windows that are filled now, and where: rows and positions."""
        if not bool(ready.any()):
            return None
        self._filled_rows = ready.nonzero().flatten()
        row, place = (ready[:, None] & at).nonzero(as_tuple=True)
        return ready, row, place

    def _spread(
        self, here: Bool[Tensor, "chains length"], row: Tensor, place: Tensor, *values: Tensor
    ) -> list[Tensor]:
        """Return values of the places that are filled in an entry for each position."""
        return [one.new_zeros(here.shape).index_put((row, place), one) for one in values]

    def _spread_rows(self, values: Float[Tensor, " rows"]) -> Float[Tensor, " chains"]:
        """Return values of the chains that are filled now in an entry for each chain."""
        return values.new_zeros(len(self._rows)).index_copy(0, self._filled_rows, values)


def single_site(move: Move) -> bool:
    """Whether a move masks one position a step, in an order known when the epoch begins."""
    return type(move) is Site and type(move.positions) is Sweep and move.positions.block == 1


def _block(kernel: Kernel) -> int:
    """Return the size of a kernel's blocks; 1 if it has none."""
    positions = getattr(getattr(kernel, "move", None), "positions", None)
    return positions.block if isinstance(positions, Sweep) else 1


def orders_of(energy: Energy) -> list[Ordered]:
    """Return the orders of an energy's ordered parts, whatever their temperatures."""
    parts = (part for _, part in energy.parts if isinstance(part, Ordered))
    return list(dict.fromkeys(replace(part, temperature=1.0) for part in parts))


def values_by_length(
    energy: Energy, model: MaskedModel, chains: Chains
) -> Float[Tensor, "chains lengths parts"]:
    """Return the parts of an energy that depend on lengths alone, for every length of the chains.

    The columns are those of `AcceptanceStages`; those of masked passes and orders are 0.
    """
    count, width = chains.tokens.shape
    shape = (count, width + 1, len(energy.parts))
    values = torch.zeros(shape, dtype=torch.float64, device=chains.tokens.device)
    for column, (_, part) in enumerate(energy.parts):
        if isinstance(part, MaskedEnergy | Ordered):
            continue
        for length in range(1, width + 1):
            lengths = torch.full_like(chains.lengths, length)
            sequences = Sequences(chains.tokens, lengths, source=chains.source)
            values[:, length, column] = evaluated(part, model, sequences)
    return values
