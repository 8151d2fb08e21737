"""The loop of a group: epochs of steps, until its turn is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch

from maskov.energies import Norm, Raw
from maskov.errors import Interrupted, MaskovError
from maskov.execution.asynchronous import Flow
from maskov.execution.scorer import Engine
from maskov.kernels import Kernel, LowestConfidence, Metropolis
from maskov.models.base import MaskedModel
from maskov.random import CounterDraws
from maskov.runs.async_group import Flight
from maskov.runs.describe import build_schedule, kernel_at
from maskov.runs.group import UNDECIDED, Progress, Row, nothing_yet, traces_of
from maskov.runs.precision_check import Shift, measure_shift
from maskov.runs.task import Taken, Turn
from maskov.schedules import Schedule
from maskov.starts import fill
from maskov.types import ChainState, Float, StepInfo, Tensor, Traces

# Chains that somebody who watches from afar is shown.
_SEEN = 8


@runtime_checkable
class Listener(Protocol):
    """Somebody who watches a run, such as the terminal."""

    def begun(self, model: MaskedModel) -> None:
        """Hear that everything is in order and the first step is next."""

    def noted(self, text: str) -> None:
        """Hear something that the user should know."""

    def moved(self, state: ChainState, epoch: int, passes: int) -> None:
        """Hear that some chains may have moved; called several times a second, not every step."""

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Hear of an epoch that was completed and traced."""


@dataclass(frozen=True)
class Settings:
    """How a run is carried out; none of it decides where the chains of a kernel go.

    `asynchronous` lets each chain go at its own pace where its kernel allows it, with `lanes`
    proposals of a chain under test at once (0: as many as keep the device busy). `trace` says
    whether the energies of every epoch are traced, or only those of epochs whose samples are kept
    where the chains do not know them anyway: to mask-predict they cost more than all else.
    `shortest` is the length of the shortest chain.
    """

    start: str = "masked"
    thin: int = 0
    asynchronous: bool = True
    lanes: int = 0
    trace: str = "every"
    shortest: int = 1

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Settings:
        """Return the settings that a run was begun with."""
        names = ("start", "thin", "asynchronous", "lanes", "trace", "shortest")
        return cls(**{name: manifest[name] for name in names})


class TurnOver(Exception):  # noqa: N818 - not a fault
    """The turn has lasted long enough."""


@dataclass
class Loop:
    """Everything that a process needs to take groups of a run on, one turn after the other."""

    kernel: Kernel
    schedule: Schedule
    engine: Engine
    draws: CounterDraws
    settings: Settings
    # Called with some chains, their epoch and the passes so far, while they move.
    watch: Callable[[ChainState, int, int], None] | None = None
    # Called with a group and the row of an epoch as soon as it is complete; otherwise rows are
    # returned at the end of the turn.
    deliver: Callable[[int, int, Traces], None] | None = None
    flown: Flow | None = None
    progress: Progress = field(init=False)
    _turn: Turn = field(init=False)
    _deadline: float = field(init=False, default=0.0)
    _rows: list[tuple[int, Traces]] = field(init=False, default_factory=list)

    @classmethod
    def of(
        cls,
        manifest: dict[str, Any],
        kernel: Kernel,
        model: MaskedModel,
        stop: Callable[[], bool] | None = None,
        watch: Callable[[ChainState, int, int], None] | None = None,
    ) -> Loop:
        """Return the loop of a run that a manifest describes."""
        schedule, draws = build_schedule(manifest["schedule"]), CounterDraws(manifest["seed"])
        engine = Engine(model, manifest["budget"], stop)
        return cls(kernel, schedule, engine, draws, Settings.of(manifest), watch)

    def take(self, turn: Turn) -> Taken:
        """Take a group on; what was completed is returned even where somebody asks to stop."""
        self._turn, self._deadline = turn, time.monotonic() + turn.seconds
        self._rows, before = [], self.engine.passes
        self.progress = turn.progress.to(self.engine.model.device)
        self.engine.batcher.budget = self.progress.budget
        shift, stopped = None, False
        try:
            try:
                if self.progress.begun:
                    self._go_on()
                else:
                    self._begin()
                    shift = self._shift()
            except TurnOver:
                pass
            except Interrupted:
                # Asked to stop between two batches: what stands here is whole, if it is numbers.
                stopped = True
            self.engine.check()
        except MaskovError as error:
            # The epochs before were checked and stay; the group stands where its turn began.
            return Taken(turn.group, turn.progress, self._rows, failure=error)
        progress = replace(self.progress, budget=self.engine.batcher.budget)
        progress = progress.to(torch.device("cpu"))
        passes = self.engine.passes - before
        seen = None if self.watch else _glimpse(progress)
        return Taken(turn.group, progress, self._rows, passes, seen, stopped, shift)

    def _begin(self) -> None:
        """Fill the blanks, unless the kernel's first step does so itself."""
        state, before = self.progress.state, self.engine.passes
        blank = bool((state.tokens == self.engine.model.mask_id)[state.inside].any())
        if blank and not isinstance(self.kernel.positions, LowestConfidence):
            state = fill(state, self.settings.start, self.kernel.proposal, self.engine, self.draws)
        spent = self.engine.passes - before
        self.progress = self.progress.with_state(state, begun=True, other_passes=spent)

    def _shift(self) -> Shift | None:
        """Measure what a coarser precision does to energies, before it is used."""
        model = self.engine.model
        if model.exact is None or self._turn.group:
            return None
        return measure_shift(model, model.exact, self.progress.state, model.precision)

    def _go_on(self) -> None:
        while self.progress.epoch < self.schedule.epochs:
            if self.progress.waits:
                self.progress = replace(self.progress, nearest=self._turn.nearest)
            if self.progress.nearest == UNDECIDED and self.progress.piloted:
                return
            kernel = kernel_at(self.kernel, self.schedule, self.progress.epoch)
            if isinstance(kernel, Metropolis) and kernel.flows and self.settings.asynchronous:
                Flight(self, kernel).run()
            else:
                self._epoch(kernel)

    def _epoch(self, kernel: Kernel) -> None:
        """Run one epoch in lock-step."""
        self._begin_epoch(kernel)
        steps = kernel.positions.steps(self.progress.state)
        for number in range(self.progress.number, int(steps.max())):
            self._step(kernel, number, steps)
            self.end_if_due(self.progress.epoch)
        self._end_epoch()
        self.end_if_due(self.progress.epoch)

    def _begin_epoch(self, kernel: Kernel) -> None:
        progress = self.progress
        state, before = progress.state, self.engine.passes
        # An energy without the passes it came from would be of no use to the next.
        lacks = isinstance(kernel, Metropolis) and kernel.energy.needs_sites and state.sites is None
        if isinstance(kernel, Metropolis) and (state.energy is None or lacks):
            state = kernel.init(state, self.engine)
        if progress.number == 0:
            state = kernel.positions.begin(state, self.draws)
            counts, rejected = nothing_yet(state)
            progress = replace(progress, counts=counts, rejected=rejected)
        spent = self.engine.passes - before
        self.progress = progress.with_state(state, other_passes=progress.other_passes + spent)

    def _step(self, kernel: Kernel, number: int, steps: Tensor) -> None:
        progress = self.progress
        rows = (steps > number).nonzero().flatten()
        masked = kernel.positions.masked(progress.state, rows, number, self.draws)
        state, info = kernel.step(progress.state, rows, masked, self.engine, self.draws)
        counts = progress.counts.index_add(0, rows, _happened(info))
        turned = progress.rejected[rows] | (masked & ~info.accepted[:, None])
        rejected = progress.rejected.index_copy(0, rows, turned)
        self.progress = progress.with_state(
            state, number=number + 1, counts=counts, rejected=rejected
        )
        self.show(state)

    def _end_epoch(self) -> None:
        progress = self.progress
        state, before = progress.state, self.engine.passes
        needed = self.settings.trace == "every" or keeps_samples(
            progress.epoch, self.settings.thin, self.schedule
        )
        if needed or state.sites is not None:
            raw, norm = both_energies(state, self.engine)
        else:
            raw = norm = state.confidence.new_full(state.chain.shape, torch.nan)
        target = torch.full_like(raw, torch.nan) if state.energy is None else state.energy
        row = {
            "energy": torch.stack([raw, norm, target], dim=1),
            "counts": progress.counts,
            "tokens": state.tokens,
            "rejected": progress.rejected,
        }
        spent = self.engine.passes - before
        self.progress = replace(progress, number=0, other_passes=progress.other_passes + spent)
        self.write(row)

    def write(self, row: Row) -> None:
        """Keep what an epoch came to."""
        self.engine.check()  # before anything of this epoch is kept
        if self.deliver is not None:
            self.deliver(self._turn.group, self.progress.epoch, traces_of(row))
        else:
            self._rows.append((self.progress.epoch, traces_of(row)))
        self.progress = replace(self.progress, epoch=self.progress.epoch + 1)

    def show(self, state: ChainState) -> None:
        """Let whoever watches see some chains."""
        if self.watch is not None:
            self.watch(state, self.progress.epoch, self.engine.passes)

    def end_if_due(self, epoch: int) -> None:
        """End the turn, if it has lasted long enough or all chains have reached its end."""
        if epoch >= self._turn.until or time.monotonic() >= self._deadline:
            raise TurnOver


def _glimpse(progress: Progress) -> ChainState:
    """Return a few chains as they stand, for somebody who watches from another process."""
    state = replace(progress.state, tokens=progress.flight.get("tokens", progress.state.tokens))
    return state.rows(torch.arange(min(_SEEN, len(state.chain))))


def keeps_samples(epoch: int, thin: int, schedule: Schedule) -> bool:
    """Whether the chains' sequences at the end of an epoch are samples to keep."""
    if thin == 0:
        return epoch == schedule.epochs - 1
    kept = epoch - schedule.burn_in + 1
    return kept > 0 and kept % thin == 0


def _happened(info: StepInfo) -> Tensor:
    """Return what a step counts, in the order of `COUNTS`."""
    one, stuck = torch.ones_like(info.passes), info.proposal.log_q_reverse == -torch.inf
    columns = (info.accepted, info.novel, info.proposed_novel, one, info.passes, stuck)
    return torch.stack([column.long() for column in columns], dim=1)


def both_energies(
    state: ChainState, engine: Engine
) -> tuple[Float[Tensor, " chains"], Float[Tensor, " chains"]]:
    """Return E_raw and E_norm of the current tokens, at no pass where the chain keeps its own."""
    sites = state.sites
    if sites is None:
        sites = engine.sites(state.sequences)
    elif bool(sites.log_normaliser[state.inside].isnan().any()):
        inside = state.inside
        missing = engine.log_normaliser(sites.hidden[inside])
        sites = replace(sites, log_normaliser=sites.log_normaliser.masked_scatter(inside, missing))
    sequences = replace(state.sequences, sites=sites)
    return Raw()(engine.model, sequences), Norm()(engine.model, sequences)
