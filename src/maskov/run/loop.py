"""The loop of a run: epochs of steps, with traces, samples and checkpoints along the way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch

from maskov.energies import Norm, Raw
from maskov.engine import Engine
from maskov.errors import Interrupted
from maskov.flow import Flow
from maskov.kernels import Kernel, Metropolis
from maskov.models.base import MaskedModel
from maskov.random import Draws
from maskov.run.describe import kernel_at
from maskov.run.flight import Flight
from maskov.run.progress import Progress, Row, nothing_yet, traces_of
from maskov.run.sample import Sample
from maskov.run.store import Store
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.types import ChainState, Float, StepInfo, Tensor, Traces


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
    """

    thin: int = 0
    checkpoint_seconds: float = 60.0
    asynchronous: bool = True
    lanes: int = 0
    trace: str = "every"


@dataclass
class Loop:
    """Everything a run needs, and the position it has reached."""

    kernel: Kernel
    schedule: Schedule
    layout: Layout
    engine: Engine
    draws: Draws
    store: Store
    progress: Progress
    settings: Settings = Settings()
    listener: Listener | None = None
    flown: Flow | None = None
    _saved: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Go on from where the run stands to its end; save on the way and when stopped."""
        if self.listener is not None:
            self.listener.begun(self.engine.model)
        try:
            while self.progress.epoch < self.schedule.epochs:
                kernel = kernel_at(self.kernel, self.schedule, self.progress.epoch)
                if isinstance(kernel, Metropolis) and kernel.flows and self.settings.asynchronous:
                    Flight(self, kernel).run()
                else:
                    self._epoch(kernel)
        except Interrupted:
            # Asked to stop between two batches: what stands here is whole, if it is numbers.
            self.engine.check()
            self._save()
            raise
        self._save()

    def _epoch(self, kernel: Kernel) -> None:
        """Run one epoch in lock-step, group after group."""
        while self.progress.group < len(self.progress.groups):
            self._begin_epoch(kernel)
            steps = kernel.positions.steps(self.progress.state)
            for number in range(self.progress.number, int(steps.max())):
                self._step(kernel, number, steps)
                self.save_if_due()
            self._end_group()
        self.end_epoch()

    def _begin_epoch(self, kernel: Kernel) -> None:
        progress = self.progress
        state = progress.state.to(self.engine.model.device)
        before = self.engine.passes
        if isinstance(kernel, Metropolis) and state.energy is None:
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
        if self.listener is not None:
            self.listener.moved(state, progress.epoch, self.engine.passes)

    def _end_group(self) -> None:
        progress = self.progress
        state, before = progress.state, self.engine.passes
        needed = self.settings.trace == "every" or self._keeps_samples(progress.epoch)
        if needed or state.sites is not None:
            raw, norm = both_energies(state, self.engine)
        else:
            raw = norm = state.confidence.new_full(state.chain.shape, torch.nan)
        target = torch.full_like(raw, torch.nan) if state.energy is None else state.energy
        energy = torch.stack([raw, norm, target], dim=1)
        row = {
            "energy": energy,
            "counts": progress.counts,
            "tokens": state.tokens,
            "rejected": progress.rejected,
        }
        spent = self.engine.passes - before
        self.end_group(
            replace(progress.with_row(row), other_passes=progress.other_passes + spent), state
        )

    def end_group(self, progress: Progress, state: ChainState) -> None:
        """Put a group that has finished its epoch to rest, on the host if there are others."""
        home = state if len(progress.groups) == 1 else state.to(torch.device("cpu"))
        self.progress = progress.with_state(home, group=progress.group + 1, number=0, flight={})

    def end_epoch(self) -> None:
        """Write the row that all groups have contributed to, and go on to the next epoch."""
        row = self.progress.row
        self.progress = replace(self.progress, group=0, row={})
        self.write(row)

    def write(self, row: Row) -> None:
        """Write what an epoch came to: its traces and, where due, its samples."""
        progress, epoch = self.progress, self.progress.epoch
        self.engine.check()  # before anything of this epoch is written
        values = traces_of(row)
        self.store.write_epoch(epoch, values)
        end = progress.samples_bytes
        if self._keeps_samples(epoch):
            end = self.store.write_samples(self._samples(epoch, row), end)
        self.progress = replace(progress, epoch=epoch + 1, samples_bytes=end)
        if self.listener is not None:
            self.listener.epoch_ended(epoch, values, self.engine.passes)

    def _keeps_samples(self, epoch: int) -> bool:
        if self.settings.thin == 0:
            return epoch == self.schedule.epochs - 1
        kept = epoch - self.schedule.burn_in + 1
        return kept > 0 and kept % self.settings.thin == 0

    def _samples(self, epoch: int, row: Row) -> list[Sample]:
        model, samples = self.engine.model, []
        for chain, (tokens, energies) in enumerate(
            zip(row["tokens"].tolist(), row["energy"].tolist(), strict=True)
        ):
            ids = tokens[: len(self.layout.tokens[chain])]
            text, words = model.decode(ids), model.token_strings(ids)
            template = self.layout.template[chain]
            raw, norm, _ = energies
            samples.append(Sample(chain, epoch, text, words, ids, raw, norm, template))
        return samples

    def save_if_due(self) -> None:
        """Save, if the last time is long enough ago."""
        if time.monotonic() - self._saved >= self.settings.checkpoint_seconds:
            self.engine.check()
            self._save()

    def _save(self) -> None:
        self.progress = replace(self.progress, budget=self.engine.batcher.budget)
        self.store.save(self.progress)
        self._saved = time.monotonic()


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
