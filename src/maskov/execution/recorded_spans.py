"""Rounds of windows for a GPU (`async_spans.py`), recorded as those of single sites are."""

from __future__ import annotations

from typing import Any

import torch

from maskov.execution.async_spans import SpanSampler
from maskov.execution.cuda_graphs import Recording
from maskov.execution.selection import choose_first
from maskov.execution.span_buffers import FILLING
from maskov.models.packed import PackedModel, pack_passes
from maskov.types import Bool, Int, Tensor

# Windows filled, and positions given to the head, at once.
_SIZES = (32, 64, 128, 256, 512, 2048, 8192)


class RecordedSpanSampler(Recording, SpanSampler):
    """A group of chains on a GPU that fill windows, in rounds that are recorded and replayed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._record(self.buffers.pending[:-1].numel(), _SIZES)

    def _room_for(self, tokens: int) -> int:
        """Return the largest room that is full; what does not fit waits for the next round."""
        return max((room for room in self._rooms if room <= tokens), default=self._rooms[0])

    def _prepare(self) -> None:
        """Prepare a round, and post how much is waiting now."""
        super()._prepare()
        b = self.buffers
        tokens = (b.pending[:-1].sum(1) * (b.lengths + self._frame)).sum()
        filling, stale = (b.stage == FILLING).sum(), self._unnormalised().sum()
        self._note(tokens, torch.maximum(filling, stale))

    def _pass(self) -> None:
        """Run as many of the passes that chains wait for as there is room for."""
        b, scorer = self.buffers, self.scorer
        model = scorer.model
        assert isinstance(model, PackedModel)
        row, column, valid = self._fill_room(b.pending[:-1])
        tokens, place = self._queries(row, column)
        lengths = torch.where(valid, b.lengths[row], 0)
        packed = pack_passes(tokens, lengths, place, model.frame, self._room)
        hidden = model.hidden_of(packed, self._width + self._frame, b.source[row])
        current = b.proposed[row, place]
        scores = scorer.scores(hidden, current, self.masked.needs_normaliser, valid)
        # What fills up the room goes to the row that belongs to nobody.
        target = torch.where(valid, row, len(self._rows))
        self._receive(target, column, hidden, *scores)
        self._count_passes(row, valid.long())

    # Where rows are gathered.

    def _rows_to_fill(self, ready: Bool[Tensor, " chains"]) -> Int[Tensor, " n"] | None:
        size = min(self._size, len(ready))
        self._filled = choose_first(ready, torch.ones_like(self._rows), size, size)
        return self._filled.index

    def _spread(
        self, ready: Bool[Tensor, " chains"], rows: Tensor, *values: Tensor
    ) -> tuple[Bool[Tensor, " chains"], list[Tensor]]:
        filled = self._filled
        return filled.taken, [value[filled.place] for value in values]

    def _stale(self) -> tuple[Tensor, Tensor] | None:
        return self._choose_places(self._unnormalised())
