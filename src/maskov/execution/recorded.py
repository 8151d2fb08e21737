"""Rounds for a GPU: no shape depends on contents, so that nothing waits for the device.

A round has a capacity of so many tokens; the passes that fill it are chosen on the device, those of
the chains with the most steps left first. Whole rounds are recorded as CUDA graphs, one for each
capacity, and replayed. The host learns what is waiting two rounds late, which is early enough to
choose the next capacity and to see that everything is done.
"""

from __future__ import annotations

import gc
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from maskov.energies.base import Energy
from maskov.energies.counting import Length, LengthPrior, PredictedLength
from maskov.energies.ordered import Ordered
from maskov.execution.buffers import COUNTS, Buffers, SiteBuffers, WindowBuffers
from maskov.execution.rounds import Rounds, put
from maskov.execution.site_rounds import SiteRounds
from maskov.execution.window_rounds import (
    WindowRounds,
    orders_of,
    single_site,
    values_by_length,
)
from maskov.kernels import Kernel, Metropolis, Mixture
from maskov.models.base import MaskedModel
from maskov.models.packed import PackedModel, pack_queries
from maskov.models.scorer import BUSY_TOKENS
from maskov.moves import Move, Resize, Site, Sweep, Window
from maskov.types import Bool, Chains, Float, Int, Tensor

_SMALLEST = 1024
# Capacities are these shares of the largest; the smallest are for the last few chains.
# Each has to be recorded, which takes tens of milliseconds.
_SHARES = (1, 4 / 3, 2, 8 / 3, 4, 16 / 3, 8, 32 / 3, 16, 32, 64, 128)
# Proposals drawn at once, as multiples of a chain's length.
_CHAINS_DRAWN = (1, 4, 8, 16, 32, 64, 128)
# Positions of windows that are filled, or given to the head, at once.
_PLACES_FILLED = (32, 128, 512, 2048, 8192)


class Recording(Rounds):
    """Rounds in two parts that are recorded once and replayed: `_prepare` and `_test`.

    `_prepare` runs the head for at most `_size` positions, and `_test` runs passes of at most
    `_capacity` tokens.
    """

    # Whether a round has the largest capacity that what waits uses up, and leaves the rest.
    _leaves_some = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        model = self.scorer.model
        assert isinstance(model, PackedModel)
        self._frame = model.frame.size
        # Nothing here may depend on which chains are loaded: a run resumed after a stop
        # must cut its batches as it would have done.
        single = self._width + self._frame
        most = self.buffers.slot_pending[:-1].numel() * single
        largest = max(_SMALLEST, min(self.scorer.batcher.budget, 1 << (most - 1).bit_length()))
        shares = {max(int(largest / share), _SMALLEST, single) for share in _SHARES}
        self._capacities = sorted(shares)
        everything = self.buffers.tokens.numel()
        self._sizes = sorted({min(size, everything) for size in self._head_sizes()})
        self._capacity, self._size = self._capacities[0], self._sizes[0]
        self._recorded: dict[Any, Any] = {}
        # Notes to the host, each with the event that says when it can be read.
        self._posted: deque[tuple[Tensor, Any]] = deque()
        # What the host reads in the middle of a round.
        self._seen = torch.zeros_like(self.buffers.waiting[0])
        self._expect()

    @abstractmethod
    def _head_sizes(self) -> Iterable[int]:
        """Return the numbers of positions for which rounds are laid out."""

    def _expect(self) -> None:
        """Begin with the notes that were posted last."""
        self._posted = deque((row, None) for row in self.buffers.waiting.cpu())
        self._slowest = int(self.buffers.waiting[0, -1])
        # Chains that are not done, by what the host knows.
        self._active = len(self._rows)

    def reload(self, buffers: Buffers) -> bool:
        """Load other chains, if what was recorded holds for them."""
        if not super().reload(buffers):
            return False
        self._expect()
        return True

    def row(self, epoch: int) -> dict[str, Tensor]:
        """Return the results of the chains; the passes are counted here, where the host learns."""
        row = super().row(epoch)
        self.scorer.passes += int(row["counts"][:, COUNTS.index("passes")].sum())
        return row

    def slowest(self) -> int:
        """Return the epoch of the slowest chain, known to the host."""
        return self._slowest

    def advance_promptly(self) -> None:
        """Do a round that holds all that waits for it.

        The device waits once while the host reads how much that is, which costs less than rounds of
        a wrong size where epochs are as short as those of populations.
        """
        device = self.buffers.tokens.device
        self._size = fitting(self._sizes, self._active)
        play(self._recorded, ("prepare", self._size), self._prepare, device)
        play(self._recorded, "now", self._look, device)
        tokens, self._active, self._slowest = self._seen.tolist()
        if self._active:
            self._capacity = fitting(self._capacities, tokens)
            play(self._recorded, ("test", self._capacity), self._test, device)

    def _look(self) -> None:
        """See how many tokens wait, how many chains are not done, and the slowest epoch."""
        b = self.buffers
        active = (b.epoch < self.limit).sum()
        self._seen.copy_(torch.stack([self._tokens_waiting(), active, b.epoch.min()]))

    def _tokens_waiting(self) -> Int[Tensor, ""]:
        cost = self._costs()[self._owner]
        return (self.buffers.slot_pending[:-1].sum(1) * cost).sum()

    def advance(self) -> None:
        """Do a round whose capacity suits what was waiting two rounds ago."""
        posted, event = self._posted.popleft()
        if event is not None:
            event.synchronize()
        tokens, stale, self._slowest = posted.tolist()
        full = [capacity for capacity in self._capacities if capacity <= tokens]
        self._capacity = (
            full[-1] if full and self._leaves_some else fitting(self._capacities, tokens)
        )
        self._size, device = fitting(self._sizes, stale), self.buffers.tokens.device
        play(self._recorded, ("prepare", self._size), self._prepare, device)
        play(self._recorded, ("test", self._capacity), self._test, device)
        self._posted.append(self._post())

    def _post(self) -> tuple[Tensor, Any]:
        """Send the host a note of what is waiting, to be read when it has arrived."""
        latest = self.buffers.waiting[-1]
        if not latest.is_cuda:
            return latest.clone(), None
        note = torch.empty(latest.shape, dtype=latest.dtype, pin_memory=True)
        note.copy_(latest, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return note, event

    def _pass(self) -> None:
        """Run as many of the passes that slots wait for as there is capacity for."""
        b, scorer, width = self.buffers, self.scorer, self._width
        model = scorer.model
        assert isinstance(model, PackedModel)
        slot, column, valid = self._choose_passes()
        asked, owner = self._queries(slot, column), self._owner[slot]
        lengths, wanted = torch.where(valid, asked.lengths, 0), asked.wanted & valid[:, None]
        several = self.most_wanted > 1
        if several:
            chosen = choose_first(wanted.flatten(), self._most_vectors(len(slot)))
            query, place, known = chosen.index // width, chosen.index % width, chosen.valid
        else:
            query = torch.arange(len(slot), device=slot.device)
            place, known = wanted.int().argmax(1), valid
        packed = pack_queries(asked.tokens, lengths, query, place, model.frame, self._capacity)
        hidden = model.hidden_of(packed, width + self._frame, b.source[owner], several)
        scored, token = known & asked.scored[query, place], asked.current[query, place]
        current = torch.where(scored, token, 0)
        scores = scorer.scores(hidden, current, self.masked.needs_normaliser, scored)
        # What fills up the capacity goes to the slot that belongs to nobody.
        nobody = len(b.slot_pending) - 1
        known = self._keep_terms(slot[query], column[query], place, hidden, token, known)
        target = torch.where(known, slot[query], nobody)
        place = torch.where(asked.back[query], width, place)
        b.slot_hidden[target, place] = hidden
        b.slot_logit[target, place], b.slot_normaliser[target, place] = scores
        b.slot_pending[torch.where(valid, slot, nobody), column] = torch.zeros_like(valid)
        self._count_passes(owner, valid.long())

    def _most_vectors(self, passes: int) -> int:
        """Return how many vectors so many passes may be asked for, within the capacity."""
        return passes

    def _choose_passes(
        self,
    ) -> tuple[Int[Tensor, " passes"], Int[Tensor, " passes"], Bool[Tensor, " passes"]]:
        """Choose this round's passes, of the chains with the most steps left: slots and columns.

        A run lasts as long as its longest chain, which must never wait for the others.
        """
        b = self.buffers
        columns = b.slot_pending.shape[1]
        waits = b.slot_pending[:-1].view(len(self._rows), -1)
        order = self._steps_left().argsort(descending=True, stable=True)
        cost = self._costs()[order, None].expand(waits.shape)
        # Places for passes half as long as usual: each is paid for, whether there is one or not.
        usual = max(self.shortest, self.mean // 2)
        places = max(1, min(self._capacity // (usual + self._frame), waits.numel()))
        chosen = choose_first(waits[order].flatten(), places, cost.flatten(), self._capacity)
        chain, entry = order[chosen.index // waits.shape[1]], chosen.index % waits.shape[1]
        return chain * self._slots + entry // columns, entry % columns, chosen.valid

    def _costs(self) -> Int[Tensor, " chains"]:
        """Return the most tokens of a pass of each chain."""
        return self.buffers.lengths + self._frame

    def _steps_left(self) -> Int[Tensor, " chains"]:
        """Return the steps that each chain may still do."""
        return (self.limit - self.buffers.epoch) * self.buffers.steps - self.buffers.epoch_step

    def _note(self, positions: Tensor) -> None:
        """Remember for the host how much is waiting now: tokens of passes, and these positions."""
        b = self.buffers
        tokens = self._tokens_waiting()
        b.waiting[:-1] = b.waiting[1:].clone()
        b.waiting[-1] = torch.stack([tokens, positions, b.epoch.min()])

    def _stale_places(self) -> tuple[Tensor, Tensor] | None:
        self._drawn = choose_first(self._stale().flatten(), self._size)
        return self._drawn.index // self._width, self._drawn.index % self._width

    def _put_places(self, where: tuple[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
        put(buffer, self._drawn.taken.view(buffer.shape), value[self._drawn.place].view_as(buffer))


class RecordedSites(Recording, SiteRounds):
    """A group of chains of single sites on a GPU, in rounds that are recorded once and replayed."""

    def _head_sizes(self) -> Iterable[int]:
        return [chains * self._width for chains in _CHAINS_DRAWN]

    def _usable_slots(self) -> Int[Tensor, " chains"]:
        """Return as many slots as leave the device idle otherwise, and more for long chains.

        A run takes as many rounds as its longest chain, so a chain with twice the usual steps left
        tests two proposals at once, where their first tests are early ones.
        """
        left = self._steps_left()
        near, single = self.stages[0].nearest, self.buffers.lengths + self._frame
        passes = self.buffers.lengths if near is None else self.buffers.lengths.clamp(max=near)
        tokens = torch.where(left > 0, passes * single, 0).sum()
        usable = (BUSY_TOKENS // tokens.clamp(min=1)).expand_as(left)
        if near is not None:
            # The mean of the chains that are not done.
            usable = torch.maximum(usable, left * (left > 0).sum() // left.sum().clamp(min=1))
        return usable.clamp(1, self._slots)

    def _settle(self) -> None:
        """Move chains along, and post how much is waiting now."""
        super()._settle()
        self._note(self._stale().sum())


class RecordedWindows(Recording, WindowRounds):
    """A group of chains on a GPU that fill windows, in rounds that are recorded and replayed."""

    _leaves_some = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        # The most positions that could be filled at once in this round.
        self._fillable = torch.zeros_like(self.limit)

    def _head_sizes(self) -> Iterable[int]:
        # The positions of a block are filled at once.
        most = max(_PLACES_FILLED[0], self.largest_block)
        return [most, *(size for size in _PLACES_FILLED if size > most)]

    def _test(self) -> None:
        """Post how much is waiting now, and end the round.

        Chains come to their fills together, every few rounds: to lay a round out for those of one
        with few would let chains wait. The most positions are forgotten slowly.
        """
        most = torch.maximum(self._fillable, self.buffers.waiting[-1, 1] * 7 // 8)
        self._note(most.maximum(self._stale().sum()) if self._normalises else most)
        self._fillable.zero_()
        super()._test()

    def _most_vectors(self, passes: int) -> int:
        """Return how many vectors so many passes may be asked for, within the capacity.

        A group of positions is a share of each pass; one pass of a chain at most fills a block.
        """
        most, blocks = passes * self.most_wanted, 0
        if self.largest_block > 1:
            blocks = min(passes, len(self._rows)) * self.largest_block
        groups = min(self._groups or self._width, self._width)
        shares = 0 if self._groups is None else self._capacity // groups
        return min(most, shares + passes + blocks)

    def _costs(self) -> Int[Tensor, " chains"]:
        return torch.maximum(self.buffers.lengths, self.buffers.new_lengths) + self._frame

    def _places_to_fill(
        self, ready: Bool[Tensor, " chains"], at: Bool[Tensor, "chains length"]
    ) -> tuple[Bool[Tensor, " chains"], Tensor, Tensor] | None:
        fewest = min(self._size, len(ready))
        torch.maximum(self._fillable, (ready[:, None] & at).sum(), out=self._fillable)
        # All positions of a window that are filled at once, or none of them.
        cost = None if self.largest_block == 1 else at.sum(1).clamp(min=1)
        self._filled = choose_first(ready, fewest, cost, self._size)
        self._filled_rows = row = self._filled.index
        if self.largest_block == 1:
            return self._filled.taken, row, at.int().argmax(1)[row]
        flat = (self._filled.taken[:, None] & at).flatten()
        self._drawn = choose_first(flat, min(self._size, len(ready) * self.largest_block))
        index = self._drawn.index
        return self._filled.taken, index // self._width, index % self._width

    def _spread(
        self, here: Bool[Tensor, "chains length"], row: Tensor, place: Tensor, *values: Tensor
    ) -> list[Tensor]:
        if self.largest_block == 1:
            return [value[self._filled.place][:, None] for value in values]
        return [value[self._drawn.place].view(here.shape) for value in values]

    def _spread_rows(self, values: Float[Tensor, " rows"]) -> Float[Tensor, " chains"]:
        return values[self._filled.place]


@lru_cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    """Return the one stream of recordings: graphs of other streams would not share memory."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


# The last graph that was recorded on each device, while somebody has it.
_LATEST: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def recorded(part: Callable[[], None]) -> Any:
    """Return a part of a round as a CUDA graph; all graphs of a device share their memory.

    They are replayed one after the other, and what they leave is in tensors of others.
    `torch.cuda.graph` would also empty the cache of memory, which is slow and not needed here.
    """
    device = torch.cuda.current_device()
    graph, stream, shared = torch.cuda.CUDAGraph(), _recording_stream(device), _LATEST.get(device)
    torch.cuda.synchronize()
    # No graph of an earlier run may be destroyed while this one is recorded.
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(*(() if shared is None else (shared.pool(),)))
            try:
                part()
            except BaseException:
                # What ends a broken recording may complain, too; the first reason is the right one.
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
    finally:
        if collects:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)
    _LATEST[device] = graph
    return graph


def play(known: dict[Any, Any], key: Any, part: Callable[[], None], device: torch.device) -> None:
    """Do a part of a round: recorded, on a GPU, if it is `known` to have been done in this size."""
    if key in known:
        known[key].replay()
        return
    # The first time it is done as it is, which also readies every kernel.
    part()
    if device.type == "cuda":
        known[key] = recorded(part)


def fitting(sizes: Sequence[int], wanted: int) -> int:
    """Return the smallest size that holds what is wanted, or the largest there is."""
    return next((size for size in sizes if size >= wanted), sizes[-1])


@dataclass(frozen=True)
class Chosen:
    """`index` lists the chosen entries; places beyond their number are not `valid`.

    `taken` marks them in the mask they were chosen from, `place` says where each is listed.
    """

    index: Int[Tensor, " places"]
    valid: Bool[Tensor, " places"]
    taken: Bool[Tensor, " entries"]
    place: Int[Tensor, " entries"]


def choose_first(
    wanted: Bool[Tensor, " entries"],
    places: int,
    cost: Int[Tensor, " entries"] | None = None,
    budget: int = 0,
) -> Chosen:
    """Choose the first wanted entries whose costs together stay within the budget.

    Without costs only their number is limited.
    """
    before = wanted.cumsum(0)
    taken = wanted & (before <= places)
    if cost is not None:
        taken &= (wanted * cost).cumsum(0) <= budget
    # Whatever is not taken goes to one place too many, and what is beyond their number is 0.
    place = (before - 1).clamp_(0, places - 1)
    target = torch.where(taken, place, places)
    entry = torch.arange(max(len(wanted), places), device=wanted.device)
    index = entry.new_zeros(places + 1).scatter_(0, target, entry[: len(wanted)])[:places]
    valid = entry[:places] < (before[-1:].clamp(max=places) if cost is None else taken.sum())
    return Chosen(index, valid, taken, place)


def _in_windows(part: Energy) -> bool:
    """Whether rounds of windows know a part of an energy that is not masked passes."""
    return type(part) in _BY_LENGTH or (type(part) is Ordered and part.fixed)


# Energies that depend on the length alone, and on the source of a translation.
_BY_LENGTH = (Length, LengthPrior, PredictedLength)


def rounds_of(kernel: Kernel) -> type[SiteRounds] | type[WindowRounds] | None:
    """Return the rounds that take a kernel's steps; None: only its own `step` does.

    Of a mixture, all parts must have one target and draw and test alike. A kernel or a move that
    decides or proposes by its own rules takes its own steps.
    """
    parts = kernel.kernels if type(kernel) is Mixture else (kernel,)
    known = [part for part in parts if type(part) is Metropolis]
    if len(known) < len(parts) or not all(_like(part, known[0]) for part in known):
        return None
    move, energy = known[0].move, known[0].energy
    others = all(_in_windows(part) for _, part in energy.others)
    if move.conditional.constraints or not energy.needs_passes or not others:
        return None
    alone = len(known) == 1 and energy.groups is None and not energy.others
    if alone and single_site(move):
        return SiteRounds
    if orders_of(energy) and any(isinstance(part.move, Resize) for part in known):
        return None
    return WindowRounds if all(_fills_windows(part.move) for part in known) else None


def new_buffers(
    kind: type[Rounds],
    kernel: Kernel,
    model: MaskedModel,
    chains: Chains,
    epoch: int = 0,
    slots: int = 1,
    ring: int = 1,
    experts: int = 0,
    steps: Tensor | None = None,
) -> Buffers:
    """Return the buffers of chains about to begin an epoch, the passes of whose tokens are known.

    `slots` are those of a chain of single sites; a chain that fills windows has one. An epoch has
    the `steps` of the kernel, unless others are given.
    """
    if issubclass(kind, SiteRounds):
        return SiteBuffers.of(chains, epoch, slots, ring)
    energy, width = kernel.energy, chains.tokens.shape[1]
    assert energy is not None
    values, known = values_by_length(energy, model, chains), chains.part_values
    ranks = [order.ranks(chains.sequences) for order in orders_of(energy)]
    groups, parts = min(energy.groups or width, width), len(energy.parts)
    # What ordered energies remember comes after the values of all parts.
    terms = values[:, 0, :0] if known is None or not ranks else known.values[:, parts:]
    terms = terms.reshape(len(terms), -1, width)
    reveal = torch.stack(ranks, dim=1) if ranks else chains.tokens[:, None][:, :0]
    given = kernel.steps(chains) if steps is None else steps
    return WindowBuffers.of(chains, given, epoch, ring, groups, values, reveal, terms, experts)


def _like(one: Metropolis, other: Metropolis) -> bool:
    """Whether two kernels differ in nothing but the windows of their moves."""
    same = one.conditional == other.conditional and one.delayed == other.delayed
    return same and one.target is not None and one.target.same_as(other.target)


def _fills_windows(move: Move) -> bool:
    """Whether a move fills windows as all built-in ones do."""
    if isinstance(move, Window):
        return type(move).propose is Window.propose
    return type(move) is Resize or (type(move) is Site and type(move.positions) is Sweep)


def sampler_for(model: MaskedModel, kernel: Kernel) -> type[Rounds] | None:
    """Return how chains go in rounds on this device; None: they go in lock-step.

    Rounds are recorded where that is possible. Windows are worth it on a GPU only.
    """
    kind = rounds_of(kernel)
    if kind is not None and model.device.type == "cuda" and model.packs:
        return RecordedSites if kind is SiteRounds else RecordedWindows
    return kind if kind is SiteRounds else None
