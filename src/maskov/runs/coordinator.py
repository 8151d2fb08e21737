"""The driver of a run: gives groups their turns, and alone writes what comes of them.

Groups go through the run each by itself; they wait for each other only where all pilots choose
together, and so that none is far ahead. What is written is the same whoever took which turn and
when: a row of a trace has its place in its file, and the samples of an epoch follow when all groups
have completed it, in the order of the chains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from maskov.errors import Interrupted, RunError
from maskov.execution.pilot import choose
from maskov.execution.scorer import MOST_LANES, Engine
from maskov.kernels import Kernel
from maskov.models.base import MaskedModel, Queries
from maskov.runs.checkpoint import Saved
from maskov.runs.describe import build_schedule
from maskov.runs.group import UNDECIDED, Progress
from maskov.runs.group_cache import Shelf
from maskov.runs.loop import Listener, keeps_samples
from maskov.runs.sample import Sample
from maskov.runs.store import Store
from maskov.runs.task import Taken, Turn
from maskov.runs.validation import Mould
from maskov.starts import Layout
from maskov.types import Tensor, Traces
from maskov.workers.base import Crew

# Epochs that one group may be ahead of the slowest when its turn begins.
_WINDOW = 8


def cut(chains: int, most: int) -> list[range]:
    """Cut the chains of a run into groups of one size, but for the last."""
    groups = -(-chains // most)
    size = -(-chains // groups)
    return [range(first, min(first + size, chains)) for first in range(0, chains, size)]


@dataclass
class _Standing:
    """What the driver remembers of a group while it rests on the shelf or is at work."""

    epoch: int = 0
    begun: bool = False
    waits: bool = False
    pilot: Tensor | None = None
    at_work: bool = False
    held: dict[int, dict[str, Tensor]] = field(default_factory=dict)


class Driver:
    """A run on its way."""

    def __init__(
        self,
        manifest: dict[str, Any],
        layout: Layout,
        kernel: Kernel,
        model: MaskedModel,
        store: Store,
        listener: Listener | None = None,
        seconds: float = 60.0,
    ) -> None:
        self.manifest = manifest
        self.layout = layout
        self.kernel = kernel
        self.model = model
        self.store = store
        self.listener = listener
        self.schedule = build_schedule(manifest["schedule"])
        self.groups = cut(manifest["chains"], manifest["resident"])
        self.shelf = Shelf(store, self._mould, seconds)
        self.head = store.head()
        self._crew: Crew | None = None
        self._seconds = seconds
        self._standing = [self._found(group) for group in range(len(self.groups))]

    def _fresh(self, group: int) -> Progress:
        rows = self.groups[group]
        state = self.layout.state(self.model, rows, self.manifest["width"])
        return Progress.fresh(state, self.manifest["budget"])

    def _mould(self, group: int) -> Mould:
        lanes = self.manifest["lanes"] or MOST_LANES
        return Mould(
            self._fresh(group), self.kernel, self.schedule, self.model,
            self.manifest["asynchronous"], lanes, lambda: self._vector,
        )  # fmt: skip

    @cached_property
    def _vector(self) -> Tensor:
        """What the model keeps of a masked position: only by asking are width and kind known."""
        state = self._fresh(0).state.to(self.model.device)
        place = torch.zeros_like(state.lengths[:1])
        masked = torch.arange(state.tokens.shape[1], device=place.device) == place[:, None]
        asked = Queries(state.tokens[:1], state.lengths[:1], masked, state.source[:1])
        return Engine(self.model, self.manifest["budget"]).hidden(asked)

    def _found(self, group: int) -> _Standing:
        """Return how a group was left."""
        saved = self.shelf.find(group)
        epochs = range(self.head.closed, min(saved.progress.epoch, self.schedule.epochs))
        wanted = {epoch for epoch in epochs if self._keeps(epoch)}
        if not wanted <= saved.held.keys() or saved.progress.epoch > self.schedule.epochs:
            # It is of a later time than all that is known of the run: it goes the way again.
            saved, wanted = Saved(self._fresh(group)), set()
            self.shelf.hold(group, saved)
        return self._stands(saved.progress, {epoch: saved.held[epoch] for epoch in wanted})

    def _keeps(self, epoch: int) -> bool:
        return keeps_samples(epoch, self.manifest["thin"], self.schedule)

    @property
    def passes(self) -> int:
        """The masked passes of this process and its workers."""
        return 0 if self._crew is None else self._crew.passes

    def _stands(self, progress: Progress, held: dict[int, dict[str, Tensor]]) -> _Standing:
        table = progress.pilot if progress.piloted else None
        return _Standing(progress.epoch, progress.begun, progress.waits, table, held=held)

    # The run.

    def run(self, crew: Crew) -> None:
        """Go on to the end; save on the way, and when stopped."""
        self._crew = crew
        told = False
        self._close()
        try:
            while self.head.closed < self.schedule.epochs:
                if not told and all(one.begun for one in self._standing):
                    told = True
                    if self.listener is not None:
                        self.listener.begun(self.model)
                self._choose()
                for group in self._ready()[: crew.free]:
                    self._standing[group].at_work = True
                    crew.give(self._turn(group, crew))
                if not any(one.at_work for one in self._standing):
                    raise RunError(
                        "the checkpoints of this run contradict each other: each group waits for "
                        "another; remove them, and it starts from its beginning."
                    )
                taken = crew.take()
                self._receive(taken)
                if taken.stopped:
                    raise Interrupted("asked to stop")
        except Interrupted:
            for taken in crew.recall():
                self._receive(taken)
            self.shelf.save_all(self.head)
            raise
        # So that at least one checkpoint knows that the run is over.
        self.shelf.put(0, replace(self.shelf.get(0), head=self.head))
        self.shelf.save_all(self.head)

    def _ready(self) -> list[int]:
        """Return the groups that can go on, the slowest first."""
        standing = self._standing
        if not all(one.begun for one in standing):
            return [g for g, one in enumerate(standing) if not (one.begun or one.at_work)]
        slowest = min(one.epoch for one in standing)
        ready = [
            group
            for group, one in enumerate(standing)
            if not one.at_work
            and one.epoch < self.schedule.epochs
            and one.epoch < slowest + _WINDOW
            and not (one.waits and self.head.nearest == UNDECIDED)
        ]
        return sorted(ready, key=lambda group: standing[group].epoch)

    def _turn(self, group: int, crew: Crew) -> Turn:
        until = self.schedule.epochs
        if len(self.groups) > 1:
            until = min(one.epoch for one in self._standing) + _WINDOW
        progress = self.shelf.get(group).progress
        return Turn(group, progress, self.head.nearest, until, crew.turn_seconds(self._seconds))

    def _choose(self) -> None:
        """Let the pilots choose once all of them have seen enough."""
        tables = [one.pilot for one in self._standing if one.pilot is not None]
        if self.head.nearest != UNDECIDED or len(tables) < len(self.groups):
            return
        # In the order of the groups, since the order of a sum rounds.
        nearest, gain = choose(torch.stack(tables).cumsum(0)[-1])
        # All groups wait at the same epoch, from which on the choice holds.
        note = {"nearest": nearest, "moves_per_pass": round(gain, 3),
                "since": self._standing[0].epoch}  # fmt: skip
        self.store.note("pilot", note)
        self.head = replace(self.head, nearest=nearest)

    # What comes of turns.

    def _receive(self, taken: Taken) -> None:
        group, progress = taken.group, taken.progress
        for epoch, values in taken.rows:
            self.deliver(group, epoch, values)
        standing = self._stands(progress, self._standing[group].held)
        self._standing[group] = standing
        if taken.shift is not None:
            self.store.note("energy_shift", asdict(taken.shift))
            if self.listener is not None:
                self.listener.noted(str(taken.shift))
        if taken.seen is not None and self.listener is not None and progress.begun:
            self.listener.moved(taken.seen, progress.epoch, self.passes)
        if progress.epoch >= self.schedule.epochs:
            # Nobody will ask for its passes again.
            progress = progress.with_state(progress.state.forget(), flight={})
        self._close()
        self.shelf.put(group, Saved(progress, standing.held, self.head))
        if taken.failure is not None:
            self.shelf.save_all(self.head)
            raise taken.failure

    def deliver(self, group: int, epoch: int, values: Traces) -> None:
        """Write what a group came to at the end of an epoch; to do so twice does no harm."""
        self.store.write_rows(self.groups[group].start, epoch, values)
        standing = self._standing[group]
        if epoch >= self.head.closed and self._keeps(epoch):
            energies = np.stack([values["energy_raw"], values["energy_norm"]], axis=1)
            standing.held[epoch] = {
                "tokens": torch.from_numpy(values["tokens"].astype(np.int32)),
                "energies": torch.from_numpy(energies),
            }
        standing.epoch = max(standing.epoch, epoch + 1)
        if len(self.groups) == 1:
            self._close()

    def _close(self) -> None:
        """Write the samples of epochs that every group has completed."""
        slowest = min(one.epoch for one in self._standing)
        while self.head.closed < slowest:
            epoch, end = self.head.closed, self.head.samples_bytes
            if self._keeps(epoch):
                end = self.store.write_samples(self._samples(epoch), end)
            for one in self._standing:
                one.held.pop(epoch, None)
            self.head = replace(self.head, closed=epoch + 1, samples_bytes=end)
            if self.listener is not None:
                self.listener.epoch_ended(epoch, self.store.row(epoch), self.passes)

    def _samples(self, epoch: int) -> Iterator[Sample]:
        model, chain = self.model, 0
        for one in self._standing:
            row = one.held[epoch]
            for tokens, (raw, norm) in zip(
                row["tokens"].tolist(), row["energies"].tolist(), strict=True
            ):
                ids = tokens[: len(self.layout.tokens[chain])]
                text, words = model.decode(ids), model.token_strings(ids)
                template = self.layout.template[chain]
                yield Sample(chain, epoch, text, words, ids, raw, norm, template)
                chain += 1
