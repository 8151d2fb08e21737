"""Coordinate a run: give groups their tasks, and alone write the results.

Groups go through the run each by itself; they wait for each other only where a run may
end because it has converged, and so that none is far ahead. What is
written is the same whoever carried out which task and when: a row of a trace has its place in its
file, and the samples of an epoch follow when all groups have completed it, in the order of the
chains.

A task is a numbered piece of work with a saved state: it starts from the state and ends, at a point
that it or somebody else chooses, with the next state and what was completed on the way. The same
state leads to the same results wherever and however often it is run. So a task can be stopped and
resumed, and one that was lost with its worker is given to another. A state is anything that can be
pickled; a pool of workers does not look into it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from maskov.config import Manifest, PrecisionCheck
from maskov.diagnostics import diagnose
from maskov.errors import Interrupted, MaskovError, RunError, refuse
from maskov.execution.recorded import rounds_of
from maskov.execution.window_rounds import WindowRounds
from maskov.fasta import mutations
from maskov.kernels import Kernel, Population
from maskov.kernels.base import kernel_at
from maskov.models.base import MaskedModel, Queries
from maskov.models.scorer import MOST_SLOTS, Scorer
from maskov.runs.state import GroupShape, GroupState
from maskov.runs.store import Store
from maskov.starts import Layout
from maskov.types import Chains, Sample, Tensor, Traces

# How often a wait looks whether somebody asked to stop, in seconds.
_LOOK = 0.1
# A task that was lost with its worker so many times in a row is not given to another.
_MOST_LOSSES = 4


class TaskOver(Exception):  # noqa: N818 - not a fault
    """The task has lasted long enough."""


@dataclass(frozen=True)
class Task:
    """Take a `state` on, to the epoch `until` or for so many `seconds`.

    Where the task ends decides nothing but when it is over. `number` is that of a group of chains.
    """

    number: int
    state: Any
    until: int
    seconds: float


@dataclass(frozen=True)
class TaskResult:
    """The new state and the rows of the epochs that a task completed.

    `passes` are those it took, `shown` a few chains to look at. `check` is what a coarser precision
    does to energies, measured where the first group begins. `failure` says why it ended early: if
    the model broke down, the state is the one that the task began with.
    """

    number: int
    state: Any
    rows: list[tuple[int, Traces]] = field(default_factory=list)
    passes: int = 0
    shown: Chains | None = None
    check: PrecisionCheck | None = None
    failure: MaskovError | None = None


class Pool(ABC):
    """Runs tasks, `size` of them at once, each for about so many `seconds`.

    A worker that fails says so in its result. One that is lost says nothing: its task is run again,
    unless that happens again and again.
    """

    # Workers that were asked to stop have so long to say how far they came, in seconds.
    patience = 60.0

    def __init__(self, size: int, seconds: float, stop: Callable[[], bool] | None = None) -> None:
        self.size = size
        self.seconds = seconds
        self._asked_to_stop = stop or (lambda: False)
        self._passes = 0
        # Tasks that were begun, by whatever tells them apart.
        self._running: dict[Any, Task] = {}
        self._losses = Counter[int]()

    @property
    def passes(self) -> int:
        """The masked passes of all tasks so far."""
        return self._passes

    def submit(self, task: Task) -> None:
        """Begin a task; there must be a free place."""
        self._running[self._begin(task)] = task

    def next(self) -> TaskResult:
        """Wait for a task to end; raise `Interrupted` when asked to stop in the meantime."""
        while True:
            if self._asked_to_stop():
                raise Interrupted("asked to stop")
            for one in self._ended(_LOOK):
                task = self._running.pop(one)
                result = self._result(one, task)
                if isinstance(result, TaskResult):
                    del self._losses[task.number]
                    self._passes += result.passes
                    return result
                self._losses[task.number] += 1
                refuse((self._losses[task.number] >= _MOST_LOSSES, result), kind=RunError)
                self.submit(task)

    def stop(self) -> list[TaskResult]:
        """Ask all workers to stop, and return what they have done, if they can say."""
        for one in self._running:
            self._tell_to_stop(one)
        found = []
        while self._running and (ended := self._ended(self.patience)):
            for one in ended:
                result = self._result(one, self._running.pop(one))
                if isinstance(result, TaskResult):
                    found.append(result)
        return found

    @abstractmethod
    def _begin(self, task: Task) -> Any:
        """Begin a task; return what tells it apart."""

    @abstractmethod
    def _ended(self, seconds: float) -> Collection[Any]:
        """Wait for so long at most; return those running tasks that have ended."""

    @abstractmethod
    def _result(self, one: Any, task: Task) -> TaskResult | str:
        """Return the result of a task that has ended, or a sentence that says how it was lost."""

    def _tell_to_stop(self, one: Any) -> None:  # noqa: B027 - some know by themselves
        """Ask the worker of a task to stop, unless it knows by itself."""

    def close(self) -> None:  # noqa: B027 - some have none
        """End all workers."""


# Epochs that one group may be ahead of the slowest when its task begins.
_WINDOW = 8
# Bytes of waiting groups that stay in memory.
_HELD = 2**28


@runtime_checkable
class Listener(Protocol):
    """An observer of a run, such as the terminal."""

    def begun(self, model: MaskedModel) -> None:
        """Note that everything is in order and the first step is next."""

    def noted(self, text: str) -> None:
        """Tell the user something."""

    def moved(self, chains: Chains, epoch: int, passes: int) -> None:
        """Show some chains that may have moved; called several times a second."""

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Show the results of an epoch that was completed."""


class Silent:
    """Nobody listens."""

    def _ignore(self, *_: Any, **__: Any) -> None: ...

    begun = noted = moved = epoch_ended = _ignore


@dataclass
class GroupProgress:
    """How far a group is: its `state` between its tasks, unless only the store has that."""

    epoch: int
    running: bool = False
    state: GroupState | None = None
    saved: bool = True
    saved_at: float = field(default_factory=time.monotonic)


class Coordinator:
    """A run in progress."""

    def __init__(
        self,
        layout: Layout,
        kernel: Kernel,
        model: MaskedModel,
        store: Store,
        listener: Listener | None = None,
        seconds: float = 60.0,
    ) -> None:
        self.layout = layout
        self.kernel = kernel
        self.model = model
        self.store = store
        self.listener: Listener = listener or Silent()
        # Between two checkpoints of a group.
        self.seconds = seconds
        # Those in the traces, if these are kept.
        self._tokens: set[int] = set()
        self._progress = [GroupProgress(self._load(n).epoch) for n in range(len(store.groups))]
        # Epochs that all groups have completed.
        self.closed = self._slowest
        self._pool: Pool

    @property
    def manifest(self) -> Manifest:
        """The run's description, with what it has found out so far."""
        return self.store.manifest

    def _fresh(self, group: int) -> GroupState:
        chains = self.layout.chains(self.model, self.store.groups[group], self.manifest.width)
        budget = self.manifest.config.execution.token_budget
        return GroupState.fresh(chains, budget, len(self.manifest.experts))

    def _load(self, group: int) -> GroupState:
        """Return a group as the store has it, or from its beginning."""
        schedule = self.manifest.schedule
        each = (kernel_at(self.kernel, schedule, epoch) for epoch in range(schedule.epochs))
        shape = GroupShape(
            self._fresh(group), schedule.epochs, MOST_SLOTS, lambda: self._vector,
            any(rounds_of(kernel) is WindowRounds for kernel in each),
            self.kernel.particles,
        )  # fmt: skip
        return self.store.load(group, shape) or shape.fresh

    @cached_property
    def _vector(self) -> Tensor:
        """What the model keeps of a masked position: only by asking are width and kind known."""
        state = self._fresh(0).chains.to(self.model.device)
        place = torch.zeros_like(state.lengths[:1])
        masked = torch.arange(state.tokens.shape[1], device=place.device) == place[:, None]
        asked = Queries(state.tokens[:1], state.lengths[:1], masked, state.source[:1])
        return Scorer(self.model, self.manifest.config.execution.token_budget).hidden(asked)

    @property
    def _slowest(self) -> int:
        """The epoch of the slowest group."""
        return min(one.epoch for one in self._progress)

    # The run.

    def run(self, pool: Pool) -> None:
        """Continue to the end; save on the way, and when stopped."""
        self._pool = pool
        self.store.begin_samples()
        for epoch in self.store.sampled(self.closed):
            self.store.write_samples(self._samples(epoch))
        for note in self.store.recovered:
            self.listener.noted(note)
        self.listener.begun(self.model)
        try:
            while self.closed < self.manifest.epochs:
                running = sum(one.running for one in self._progress)
                for group in self._ready()[: pool.size - running]:
                    state = self._progress[group].state or self._load(group)
                    self._progress[group].running = True
                    pool.submit(Task(group, state, self._most(), pool.seconds))
                result = pool.next()
                self._receive(result)
                if result.failure is not None:
                    self._save_all()
                    raise result.failure
        except Interrupted:
            for result in pool.stop():
                self._receive(result)
            self._save_all()
            raise
        self._save_all()
        self.store.end_samples()

    def _most(self) -> int:
        """Return the epoch that no task may go beyond now: the next check, the end, or a window."""
        window = self._slowest + _WINDOW if len(self._progress) > 1 else self.manifest.epochs
        later = [check for check in self.manifest.checks if check > self.closed]
        return min([self.manifest.epochs, window, *later])

    def _ready(self) -> list[int]:
        """Return the groups that can continue, those with the most work left first."""
        progress, most = self._progress, self._most()
        ready = [g for g, one in enumerate(progress) if not one.running and one.epoch < most]
        return sorted(ready, key=self._work_left, reverse=True)

    def _work_left(self, group: int) -> int:
        """Return the epochs left of a group; every second population makes longer ones."""
        longer = self.kernel.longer if isinstance(self.kernel, Population) and group % 2 else 1
        return longer * (self.manifest.epochs - self._progress[group].epoch)

    # Results of tasks.

    def _receive(self, result: TaskResult) -> None:
        group, state, one = result.number, result.state, self._progress[result.number]
        for epoch, values in result.rows:
            self.deliver(group, epoch, values)
        one.epoch, one.running = state.epoch, False
        if result.check is not None:
            self.store.note(precision_check=result.check)
            self.listener.noted(str(result.check))
        if result.shown is not None:
            self.show(result.shown)
        if state.epoch >= self.manifest.epochs:
            # Nobody will ask for its passes again.
            state = replace(state, chains=state.chains.forget(), buffers={})
        one.state, one.saved = state, False
        if time.monotonic() - one.saved_at >= self.seconds:
            self._save(group)
        self._make_room()
        self.store.spell(self._tokens, self.model.token_strings)

    def _save(self, group: int) -> None:
        one = self._progress[group]
        if one.state is not None and not one.saved:
            self.store.save(group, one.state)
            one.saved, one.saved_at = True, time.monotonic()

    def _save_all(self) -> None:
        for group in range(len(self._progress)):
            self._save(group)

    def _make_room(self) -> None:
        """Leave groups to the store, so that a run of many chains needs no more than one of few."""
        sizes = {g: one.state.size for g, one in enumerate(self._progress) if one.state is not None}
        for group in sizes if self.store.durable and len(sizes) > 1 else ():
            if sum(sizes.values()) > _HELD:
                self._save(group)
                self._progress[group].state, sizes[group] = None, 0

    def deliver(self, group: int, epoch: int, values: Traces) -> None:
        """Write the results of a group's epoch; writing them twice does no harm."""
        self.store.write_rows(self.store.groups[group].start, epoch, values)
        if "tokens" in self.store.traced():
            tokens, lengths = values["tokens"], values["lengths"]
            self._tokens.update(tokens[np.arange(tokens.shape[1]) < lengths[:, None]].tolist())
        one = self._progress[group]
        one.epoch = max(one.epoch, epoch + 1)
        self._close()

    def show(self, chains: Chains) -> None:
        """Show some chains, and how far all groups are on average: theirs may be ahead."""
        each = zip(self._progress, self.store.groups, strict=True)
        total = sum(one.epoch * len(group) for one, group in each)
        self.listener.moved(chains, total // self.manifest.chains, self._pool.passes)

    def _close(self) -> None:
        """Write the samples of epochs that every group has completed."""
        while self.closed < self._slowest:
            epoch = self.closed
            # Noted before a checkpoint can say that the epoch is closed.
            if epoch + 1 in self.manifest.checks:
                self._check(epoch + 1)
            if epoch in self.store.sampled(epoch + 1):
                self.store.write_samples(self._samples(epoch))
            self.closed = epoch + 1
            self.listener.epoch_ended(epoch, self.store.row(epoch), self._pool.passes)

    def _check(self, epochs: int) -> None:
        """End the run after so many epochs if its chains have converged.

        The decision depends on the traces of these epochs alone, so that a run that is resumed
        makes it again.
        """
        manifest = self.manifest
        if manifest.config.until is None or manifest.stopped_at is not None:
            return
        traces = {name: trace[:epochs] for name, trace in self.store.traces().items()}
        self.store.spell(self._tokens, self.model.token_strings)
        verdict = diagnose(manifest, traces, self.store.spellings).verdict
        if verdict.state == "converged":
            self.store.note(stopped_at=epochs)
        self.listener.noted(f"epoch {epochs}: {verdict}")

    def _samples(self, epoch: int) -> Iterator[Sample]:
        """Yield the samples of an epoch, as the arrays have them."""
        model, layout, manifest = self.model, self.layout, self.manifest
        experts, particles, lines = manifest.experts, manifest.particles, manifest.inputs.names
        row = {name: column.tolist() for name, column in self.store.row(epoch).items()}
        for chain, tokens in enumerate(self.store.tokens(epoch).tolist()):
            ids, start = tokens[: row["lengths"][chain]], layout.starts[chain]
            strings, more = model.token_strings(ids), dict[str, Any]()
            if experts:
                energies = [row["energy_target"][chain], *row["expert_energy"][chain]]
                more["energies"] = dict(zip(("target", *experts), energies, strict=True))
            if lines is not None:
                more["name"] = lines[start.template]
                if start.reference and not layout.resizable:
                    more["mutations"] = mutations(model.token_strings(start.reference), strings)
            if particles:
                # Those that were drawn again by their weights all have the same.
                more |= {"population": chain // particles, "weight": 1 / particles}
                more["ancestor"] = row["ancestor"][chain]
            yield Sample(
                chain,
                epoch,
                model.decode(ids),
                strings,
                ids,
                row["energy_raw"][chain],
                row["energy_norm"][chain],
                start.template,
                **more,
            )
