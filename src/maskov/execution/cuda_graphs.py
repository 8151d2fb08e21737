"""Rounds for a GPU: no shape depends on contents, so that nothing waits for the device.

A round has room for so many tokens; the passes that fill it are chosen on the device, those of the
chains that are furthest behind first. Whole rounds are recorded as CUDA graphs, one for each size
of room, and replayed. The host learns what is waiting two rounds late, which is early enough to
choose the size of the next room and to see that everything is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from maskov.execution.asynchronous import AsyncSampler
from maskov.execution.buffers import COUNTS, Buffers
from maskov.execution.selection import Chosen, choose_first
from maskov.models.huggingface import HuggingFaceModel
from maskov.models.packing import pack
from maskov.types import Bool, Int, Tensor

# Rooms are these shares of the largest; the smallest is for a single chain.
_SHARES = (1, 2, 4, 16, 64)
_SMALLEST = 1024
# Proposals drawn at once, as multiples of a chain's length.
_CHAINS_DRAWN = (2, 8, 32, 128)


class RecordedSampler(AsyncSampler):
    """A group of chains on a GPU, in rounds that are recorded once and replayed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        model = self.scorer.model
        assert isinstance(model, HuggingFaceModel)
        assert self.observer is None, "a recorded round cannot be observed"
        assert not self.plan.others, "a recorded round runs masked passes only"
        self._frame = model.frame.size
        # Nothing here may depend on which chains are loaded: a run that goes on after a stop
        # must cut its batches as it would have done.
        most = self.buffers.slot_pending[:-1].numel() * (self._width + self._frame)
        largest = max(_SMALLEST, min(self.scorer.batcher.budget, 1 << (most - 1).bit_length()))
        single = self._width + self._frame
        rooms = {max(largest // share, _SMALLEST, single) for share in _SHARES}
        self._rooms = sorted(rooms)
        everything = self.buffers.tokens.numel()
        self._sizes = sorted({min(chains * self._width, everything) for chains in _CHAINS_DRAWN})
        self._room, self._low_round, self._size = self._rooms[0], False, self._sizes[0]
        self._recorded: dict[Any, Any] = {}
        self._pool: Any = None
        # Notes to the host, each with the event that says when it can be read.
        self._posted: deque[tuple[Tensor, Any]] = deque()
        self._expect()

    def _expect(self) -> None:
        """Begin with the notes that were posted last."""
        self._posted = deque((row, None) for row in self.buffers.waiting.cpu())
        self._slowest = int(self.buffers.waiting[0, -1])

    def reload(self, buffers: Buffers) -> bool:
        """Load other chains, if what was recorded holds for them."""
        if not super().reload(buffers):
            return False
        self._expect()
        return True

    def row(self, epoch: int) -> dict[str, Tensor]:
        """Return what the chains came to; the passes are counted here, where the host learns."""
        row = super().row(epoch)
        self.scorer.count(int(row["counts"][:, COUNTS.index("passes")].sum()))
        return row

    def slowest(self) -> int:
        """Return the epoch of the slowest chain, as far as the host knows."""
        return self._slowest

    def advance(self) -> None:
        """Do a round whose room suits what was waiting two rounds ago."""
        posted, event = self._posted.popleft()
        if event is not None:
            event.synchronize()
        tokens, low_tokens, stale, self._slowest = posted.tolist()
        self._low_round = low_tokens > tokens
        self._room = _fitting(self._rooms, max(tokens, low_tokens))
        self._size = _fitting(self._sizes, stale)
        self._play(("prepare", self._size), self._prepare)
        self._play(("test", self._room, self._low_round), self._test)
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

    def _play(self, key: tuple[Any, ...], part: Callable[[], None]) -> None:
        """Do a part of a round, recorded if it has been done in this size before."""
        if key in self._recorded:
            self._recorded[key].replay()
            return
        # The first time it is done as it is, which also readies every kernel.
        part()
        if not self.buffers.tokens.is_cuda:
            return
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            part()
        self._pool = graph.pool()
        self._recorded[key] = graph

    def _test(self) -> None:
        """Run passes and settle what they decide."""
        self._offer()
        self._pass()
        self._decide()
        self._settle()

    # The parts of a round that gather rows.

    def _pass(self) -> None:
        """Run as many of the passes that slots wait for as there is room for."""
        b, low = self.buffers, self._low_round
        scorer = self.low if low else self.scorer
        assert scorer is not None
        model = scorer.model
        assert isinstance(model, HuggingFaceModel)
        slot, place, valid = self._choose_passes(low)
        tokens = self._slot_tokens()
        owner = self._owner[slot]
        lengths = torch.where(valid, b.lengths[owner], 0)
        packed = pack(tokens[slot], lengths, place, model.frame, self._room)
        hidden = model.hidden_of(packed, self._width + self._frame)
        logit, normaliser = scorer.scores(
            hidden, tokens[slot, place], self.masked.needs_normaliser, valid
        )
        # What fills up the room goes to the slot that belongs to nobody.
        target = torch.where(valid, slot, len(b.slot_place) - 1)
        self._receive(low, target, place, hidden, logit, normaliser)
        self._count_passes(owner, valid.long())

    def _choose_passes(self, low: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return slots and places of this room's passes, those of the slowest chains first."""
        b, slots = self.buffers, self._slots
        waits = self._waits(low).view(len(b.chain), -1)
        order = (b.epoch * 2**32 + b.number).argsort(stable=True)
        cost = (b.lengths + self._frame)[order, None].expand(waits.shape)
        places = min(self._room // (self.shortest + self._frame), waits.numel())
        chosen = choose_first(waits[order].flatten(), cost.flatten(), self._room, places)
        chain = order[chosen.index // waits.shape[1]]
        entry = chosen.index % waits.shape[1]
        slot = chain * slots + entry // self._width
        return slot, entry % self._width, chosen.valid

    def _settle(self) -> None:
        """Move chains along, and post how much is waiting now."""
        super()._settle()
        b = self.buffers
        cost = (b.lengths + self._frame)[self._owner]
        tokens = [(self._waits(low).sum(1) * cost).sum() for low in (False, True)]
        b.waiting[:-1] = b.waiting[1:].clone()
        b.waiting[-1] = torch.stack([*tokens, self._undrawn().sum(), b.epoch.min()])

    def _rows_of(self, chosen: Bool[Tensor, " chains"]) -> Int[Tensor, " chains"] | None:
        return self._rows

    def _put_rows(self, chosen: Tensor, rows: Tensor, buffer: Tensor, value: Tensor) -> None:
        here = chosen.view(-1, *(1,) * (buffer.dim() - 1))
        buffer.copy_(torch.where(here, value, buffer))

    def _stale(self) -> tuple[Tensor, Tensor] | None:
        stale = self._undrawn().flatten()
        one = torch.ones_like(stale, dtype=torch.long)
        self._drawn = choose_first(stale, one, self._size, self._size)
        return self._drawn.index // self._width, self._drawn.index % self._width

    def _put_places(self, where: tuple[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
        drawn: Chosen = self._drawn
        flat = torch.where(drawn.taken, value[drawn.place], buffer.flatten())
        buffer.copy_(flat.view(buffer.shape))


def _fitting(sizes: Sequence[int], wanted: int) -> int:
    """Return the smallest size that holds what is wanted, or the largest there is."""
    return next((size for size in sizes if size >= wanted), sizes[-1])
