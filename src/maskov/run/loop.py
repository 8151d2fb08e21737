"""The loop of a run: epochs of steps, with traces, samples and checkpoints along the way."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from maskov.energies import Norm, Raw
from maskov.engine import Engine
from maskov.errors import Interrupted
from maskov.kernels import Kernel, Metropolis
from maskov.models.base import MaskedModel
from maskov.random import Draws
from maskov.run.checkpoint import COUNTS, Progress
from maskov.run.describe import kernel_at
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

    def stepped(self, state: ChainState, info: StepInfo, epoch: int, passes: int) -> None:
        """Hear of a step."""

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Hear of an epoch that was completed and traced."""


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
    thin: int = 0
    checkpoint_seconds: float = 60.0
    listener: Listener | None = None

    def run(self) -> None:
        """Go on from where the run stands to its end; save on the way and when stopped."""
        saved = time.monotonic()
        if self.listener is not None:
            self.listener.begun(self.engine.model)
        try:
            while self.progress.epoch < self.schedule.epochs:
                kernel = kernel_at(self.kernel, self.schedule, self.progress.epoch)
                self._begin_epoch(kernel)
                steps = kernel.positions.steps(self.progress.state)
                for number in range(self.progress.number, int(steps.max())):
                    self._step(kernel, number, steps)
                    if time.monotonic() - saved >= self.checkpoint_seconds:
                        self.engine.check()
                        self._save()
                        saved = time.monotonic()
                self._end_epoch()
        except (KeyboardInterrupt, Interrupted):
            # A step changes nothing until it is complete, so what stands here is whole.
            self._save()
            raise
        self._save()

    def _begin_epoch(self, kernel: Kernel) -> None:
        progress = self.progress
        state = progress.state
        before = self.engine.passes
        if isinstance(kernel, Metropolis) and state.energy is None:
            state = kernel.init(state, self.engine)
        if progress.number == 0:
            state = kernel.positions.begin(state, self.draws)
        spent = self.engine.passes - before
        self.progress = replace(progress, state=state, other_passes=progress.other_passes + spent)

    def _step(self, kernel: Kernel, number: int, steps: Tensor) -> None:
        progress = self.progress
        rows = (steps > number).nonzero().flatten()
        masked = kernel.positions.masked(progress.state, rows, number, self.draws)
        state, info = kernel.step(progress.state, rows, masked, self.engine, self.draws)
        happened = {
            "accepted": info.accepted.long(),
            "novel": info.novel.long(),
            "proposed_novel": info.proposed_novel.long(),
            "steps": torch.ones_like(rows),
            "passes": info.passes,
        }
        counts = {name: progress.counts[name].index_add(0, rows, happened[name]) for name in COUNTS}
        self.progress = replace(progress, state=state, number=number + 1, counts=counts)
        if self.listener is not None:
            self.listener.stepped(state, info, progress.epoch, self.engine.passes)

    def _end_epoch(self) -> None:
        progress = self.progress
        state, epoch = progress.state, progress.epoch
        before = self.engine.passes
        raw, norm = both_energies(state, self.engine)
        self.engine.check()  # before anything of this epoch is written
        target = torch.full_like(raw, torch.nan) if state.energy is None else state.energy
        values: Traces = {
            "energy_raw": raw.cpu().numpy(),
            "energy_norm": norm.cpu().numpy(),
            "energy_target": target.cpu().numpy(),
            **{name: progress.counts[name].cpu().numpy() for name in COUNTS},
        }
        self.store.write_epoch(epoch, values)
        end = progress.samples_bytes
        if self._keeps_samples(epoch):
            end = self.store.write_samples(self._samples(epoch, raw, norm), end)
        self.progress = replace(
            progress,
            epoch=epoch + 1,
            number=0,
            counts={name: torch.zeros_like(progress.counts[name]) for name in COUNTS},
            other_passes=progress.other_passes + self.engine.passes - before,
            samples_bytes=end,
        )
        if self.listener is not None:
            self.listener.epoch_ended(epoch, values, self.engine.passes)

    def _keeps_samples(self, epoch: int) -> bool:
        if self.thin == 0:
            return epoch == self.schedule.epochs - 1
        kept = epoch - self.schedule.burn_in + 1
        return kept > 0 and kept % self.thin == 0

    def _samples(self, epoch: int, raw: Tensor, norm: Tensor) -> list[Sample]:
        state, model = self.progress.state, self.engine.model
        columns = (state.chain, state.tokens, state.lengths, raw, norm)
        samples = []
        for chain, tokens, length, energy_raw, energy_norm in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            ids = tokens[:length]
            text, words = model.decode(ids), model.token_strings(ids)
            template = self.layout.template[chain]
            samples.append(
                Sample(chain, epoch, text, words, ids, energy_raw, energy_norm, template)
            )
        return samples

    def _save(self) -> None:
        self.progress = replace(self.progress, budget=self.engine.batcher.budget)
        self.store.save(self.progress)


def both_energies(
    state: ChainState, engine: Engine
) -> tuple[Float[Tensor, " chains"], Float[Tensor, " chains"]]:
    """Return E_raw and E_norm of the current tokens, at no pass where the chain keeps its own."""
    sites = state.sites
    if sites is None:
        sites = engine.sites(state.tokens, state.lengths)
    elif bool(sites.log_normaliser[state.inside].isnan().any()):
        inside = state.inside
        missing = engine.log_normaliser(sites.hidden[inside])
        sites = replace(sites, log_normaliser=sites.log_normaliser.masked_scatter(inside, missing))
    sequences = replace(state.sequences, sites=sites)
    return Raw()(engine.model, sequences), Norm()(engine.model, sequences)
