"""Rounds for a GPU: no shape depends on contents, so that nothing waits for the device.

A round has room for so many tokens; the passes that fill it are chosen on the device, those of the
chains with the most steps left first. Whole rounds are recorded as CUDA graphs, one for each size
of room, and replayed. The host learns what is waiting two rounds late, which is early enough to
choose the size of the next room and to see that everything is done. Single sites are here, windows
in `recorded_spans.py`.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch

from maskov.execution.async_chains import AsyncChains
from maskov.execution.asynchronous import AsyncSampler
from maskov.execution.buffers import COUNTS, ChainBuffers
from maskov.execution.selection import Chosen, choose_first
from maskov.models.packed import PackedModel, pack_passes
from maskov.models.scorer import BUSY_TOKENS
from maskov.types import Bool, Float, Int, Tensor

_SMALLEST = 1024
# Rooms are these shares of the largest; the smallest are for the last few chains.
# Each has to be recorded, which takes tens of milliseconds.
_SHARES = (1, 4 / 3, 2, 8 / 3, 4, 8, 16, 32, 128)
# Proposals drawn at once, as multiples of a chain's length.
_CHAINS_DRAWN = (1, 8, 16, 32, 64, 128)


class Recording(AsyncChains):
    """Rounds in two parts that are recorded once and replayed: `_prepare` and `_test`.

    `_prepare` runs the head for at most `_size` positions, and `_test` runs passes of at most
    `_room` tokens.
    """

    def _record(self, entries: int, sizes: Iterable[int]) -> None:
        """Lay out rounds for so many passes at once and for these numbers of positions."""
        model = self.scorer.model
        assert isinstance(model, PackedModel)
        self._frame = model.frame.size
        # Nothing here may depend on which chains are loaded: a run resumed after a stop
        # must cut its batches as it would have done.
        single = self._width + self._frame
        most = entries * single
        largest = max(_SMALLEST, min(self.scorer.batcher.budget, 1 << (most - 1).bit_length()))
        rooms = {max(int(largest / share), _SMALLEST, single) for share in _SHARES}
        self._rooms = sorted(rooms)
        everything = self.buffers.tokens.numel()
        self._sizes = sorted({min(size, everything) for size in sizes})
        self._room, self._size = self._rooms[0], self._sizes[0]
        self._recorded: dict[Any, Any] = {}
        self._pool: Any = None
        # Notes to the host, each with the event that says when it can be read.
        self._posted: deque[tuple[Tensor, Any]] = deque()
        self._expect()

    def _expect(self) -> None:
        """Begin with the notes that were posted last."""
        self._posted = deque((row, None) for row in self.buffers.waiting.cpu())
        self._slowest = int(self.buffers.waiting[0, -1])

    def reload(self, buffers: ChainBuffers) -> bool:
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

    def advance(self) -> None:
        """Do a round whose room suits what was waiting two rounds ago."""
        posted, event = self._posted.popleft()
        if event is not None:
            event.synchronize()
        tokens, stale, self._slowest = posted.tolist()
        self._room = self._room_for(tokens)
        self._size = fitting(self._sizes, stale)
        self._play(("prepare", self._size), self._prepare)
        self._play(("test", self._room), self._test)
        self._posted.append(self._post())

    @property
    def last_size(self) -> tuple[int, int]:
        """The tokens of the last round's room, and the positions it had for the head."""
        return self._room, self._size

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

    def _play(self, key: tuple[Any, ...], part: Callable[[], None]) -> None:
        """Do a part of a round, recorded if it has been done in this size before."""
        if key in self._recorded:
            self._recorded[key].replay()
            return
        # The first time it is done as it is, which also readies every kernel.
        part()
        if not self.buffers.tokens.is_cuda:
            return
        self._recorded[key] = graph = recorded(part, self._pool)
        self._pool = graph.pool()

    def _room_for(self, tokens: int) -> int:
        """Return the room for so many tokens that wait."""
        return fitting(self._rooms, tokens)

    def _fill_room(
        self, waits: Bool[Tensor, "chains entries"]
    ) -> tuple[Int[Tensor, " passes"], Int[Tensor, " passes"], Bool[Tensor, " passes"]]:
        """Choose this room's passes, of the chains with the most steps left: chains and entries.

        A run lasts as long as its longest chain, which must never wait for the others.
        """
        b = self.buffers
        order = self._steps_left().argsort(descending=True, stable=True)
        cost = (b.lengths + self._frame)[order, None].expand(waits.shape)
        # Room for passes half as long as usual: each is paid for, whether there is one or not.
        usual = max(self.shortest, self.mean // 2)
        places = max(1, min(self._room // (usual + self._frame), waits.numel()))
        chosen = choose_first(waits[order].flatten(), cost.flatten(), self._room, places)
        chain = order[chosen.index // waits.shape[1]]
        return chain, chosen.index % waits.shape[1], chosen.valid

    def _steps_left(self) -> Int[Tensor, " chains"]:
        """Return the steps that each chain may still do."""
        return (self.limit - self.buffers.epoch) * self._epoch_steps() - self.buffers.epoch_step

    def _note(self, *waiting: Tensor) -> None:
        """Remember for the host how much is waiting now."""
        b = self.buffers
        b.waiting[:-1] = b.waiting[1:].clone()
        b.waiting[-1] = torch.stack([*waiting, b.epoch.min()])

    def _rows_of(self, chosen: Bool[Tensor, " chains"]) -> Int[Tensor, " chains"] | None:
        return self._rows

    def _put_rows(self, chosen: Tensor, rows: Tensor, buffer: Tensor, value: Tensor) -> None:
        here = chosen.view(-1, *(1,) * (buffer.dim() - 1))
        buffer.copy_(torch.where(here, value, buffer))

    def _put_vectors(
        self,
        chosen: Bool[Tensor, "chains length"],
        row: Int[Tensor, " chains"],
        source: Float[Tensor, "rows columns hidden"],
    ) -> None:
        hidden, copy = self.buffers.hidden, _copy_kernel() if source.is_cuda else None
        if copy is not None:
            copy(hidden, source, chosen, row)
            return
        new = source[row, : self._width]
        hidden.copy_(torch.where(chosen[..., None], new, hidden))

    def _choose_places(self, stale: Bool[Tensor, "chains length"]) -> tuple[Tensor, Tensor]:
        """Choose positions for the head."""
        flat = stale.flatten()
        one = torch.ones_like(flat, dtype=torch.long)
        self._drawn = choose_first(flat, one, self._size, self._size)
        return self._drawn.index // self._width, self._drawn.index % self._width

    def _put_places(self, where: tuple[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
        drawn: Chosen = self._drawn
        flat = torch.where(drawn.taken, value[drawn.place], buffer.flatten())
        buffer.copy_(flat.view(buffer.shape))


class RecordedSampler(Recording, AsyncSampler):
    """A group of chains on a GPU, in rounds that are recorded once and replayed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        assert self.observer is None, "a recorded round cannot be observed"
        entries = self.buffers.slot_pending[:-1].numel()
        self._record(entries, [chains * self._width for chains in _CHAINS_DRAWN])

    def _test(self) -> None:
        """Fill slots, run passes and settle what they decide."""
        self._offer()
        super()._test()

    def _usable_slots(self) -> Int[Tensor, " chains"] | None:
        """Return as many slots as leave the device idle otherwise, and more for long chains.

        A run takes as many rounds as its longest chain, so a chain with twice the usual steps left
        tests two proposals at once, where their first tests are early ones.
        """
        if self._slots == 1:
            return None
        left = self._steps_left()
        near, single = self.stages[0].nearest, self.buffers.lengths + self._frame
        passes = self.buffers.lengths if near is None else self.buffers.lengths.clamp(max=near)
        tokens = torch.where(left > 0, passes * single, 0).sum()
        usable = (BUSY_TOKENS // tokens.clamp(min=1)).expand_as(left)
        if near is not None:
            # The mean of the chains that are not done.
            usable = torch.maximum(usable, left * (left > 0).sum() // left.sum().clamp(min=1))
        return usable.clamp(1, self._slots)

    # The parts of a round that gather rows.

    def _pass(self) -> None:
        """Run as many of the passes that slots wait for as there is room for."""
        b, scorer = self.buffers, self.scorer
        model = scorer.model
        assert isinstance(model, PackedModel)
        slot, place, valid = self._choose_passes()
        tokens = self._slot_tokens()
        owner = self._owner[slot]
        lengths = torch.where(valid, b.lengths[owner], 0)
        packed = pack_passes(tokens[slot], lengths, place, model.frame, self._room)
        hidden = model.hidden_of(packed, self._width + self._frame, b.source[owner])
        logit, normaliser = scorer.scores(
            hidden, tokens[slot, place], self.masked.needs_normaliser, valid
        )
        # What fills up the room goes to the slot that belongs to nobody.
        target = torch.where(valid, slot, len(b.slot_place) - 1)
        self._receive(target, place, hidden, logit, normaliser)
        self._count_passes(owner, valid.long())

    def _choose_passes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return slots and places of this room's passes."""
        waits = self.buffers.slot_pending[:-1].view(len(self._rows), -1)
        chain, entry, valid = self._fill_room(waits)
        return chain * self._slots + entry // self._width, entry % self._width, valid

    def _settle(self) -> None:
        """Move chains along, and post how much is waiting now."""
        super()._settle()
        b = self.buffers
        cost = (b.lengths + self._frame)[self._owner]
        self._note((b.slot_pending[:-1].sum(1) * cost).sum(), self._undrawn().sum())

    def _stale(self) -> tuple[Tensor, Tensor] | None:
        return self._choose_places(self._undrawn())


@lru_cache(maxsize=1)
def _copy_kernel() -> Callable[[Tensor, Tensor, Tensor, Tensor], None] | None:
    """Return `copy_vectors`, where Triton is there."""
    try:
        module = import_module("maskov.execution.copy_vectors")
    except ImportError:
        return None
    copy: Callable[[Tensor, Tensor, Tensor, Tensor], None] = module.copy_vectors
    return copy


@lru_cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    """Return the one stream of recordings: graphs of other streams would not share memory."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def recorded(part: Callable[[], None], pool: Any) -> Any:
    """Return a part of a round as a CUDA graph; graphs of one `pool` share their memory.

    `torch.cuda.graph` would also empty the cache of memory, which is slow and not needed here.
    """
    graph, stream = torch.cuda.CUDAGraph(), _recording_stream(torch.cuda.current_device())
    torch.cuda.synchronize()
    # No graph of an earlier run may be destroyed while this one is recorded.
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(*(() if pool is None else (pool,)))
            try:
                part()
            finally:
                graph.capture_end()
    finally:
        if collects:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def fitting(sizes: Sequence[int], wanted: int) -> int:
    """Return the smallest size that holds what is wanted, or the largest there is."""
    return next((size for size in sizes if size >= wanted), sizes[-1])
