"""Take a group through epochs in which its chains advance asynchronously.

The group goes through all epochs that its kernel allows; an epoch's results are written as soon as
the slowest chain has finished it. A task may end anywhere on the way: the buffers are then kept as
they are, and the next task goes on with the same rounds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from maskov.energies.stages import AcceptanceStages
from maskov.errors import Interrupted
from maskov.execution.buffers import Buffers, SiteBuffers, WindowBuffers
from maskov.execution.loop import kernel_at
from maskov.execution.recorded import rounds_of, sampler_for
from maskov.execution.rounds import Rounds
from maskov.execution.window_rounds import WindowRounds
from maskov.kernels import Kernel, Metropolis
from maskov.models.scorer import refuse_out_of_memory
from maskov.types import Tensor

if TYPE_CHECKING:
    from maskov.runs.task_runner import TaskRunner

# Epochs that the fastest chain may be ahead of the slowest.
AHEAD = 16
_FRAME_SECONDS = 1 / 12


class AsyncGroup:
    """One stretch of epochs of a group, with one kernel."""

    def __init__(self, runner: TaskRunner, kernel: Metropolis) -> None:
        self.runner = runner
        self.kernel = kernel
        self._shown = 0.0
        self._windows = rounds_of(kernel) is WindowRounds
        group = runner.group
        if group.buffers:
            return
        # Where the run may end, all chains meet.
        end = group.epoch + 1
        epochs = min(check for check in runner.manifest.checks if check >= end)
        while end < epochs and _alike(kernel, kernel_at(runner.kernel, runner.schedule, end)):
            end += 1
        runner.group = replace(group, end=end)

    def run(self) -> None:
        """Go on to the end of the stretch, or until the task is over."""
        runner = self.runner
        sampler = self._sampler()
        self._keep(sampler)
        while True:
            try:
                runner.scorer.batcher.raise_if_stopped()
                with refuse_out_of_memory():
                    sampler.advance()
            except Interrupted:
                self._keep(sampler)
                raise
            slowest = sampler.slowest()
            while runner.group.epoch < min(slowest, runner.group.end):
                runner.write(sampler.row(runner.group.epoch))
            if slowest >= runner.group.end:
                break
            self._limit(sampler)
            self._keep(sampler)
            runner.end_if_due()
            self._show(sampler)
        group = runner.group
        runner.group = group.with_chains(sampler.state(group.chains), buffers={})
        runner.end_if_due()

    def _keep(self, sampler: Rounds) -> None:
        self.runner.group = replace(self.runner.group, buffers=sampler.buffers.tensors())

    def _sampler(self) -> Rounds:
        """Return the group as it was left, or from its start."""
        runner = self.runner
        plan = self.kernel.plan
        kept = runner.group.buffers
        kind = WindowBuffers if self._windows else SiteBuffers
        buffers = kind(**kept) if kept else self._buffers(plan)
        sampler = runner.sampler
        same = sampler is not None and _alike(sampler.kernel, self.kernel) and sampler.plan == plan
        if sampler is None or not same or not sampler.reload(buffers):
            # A run of a GPU may go on elsewhere, where its windows are not recorded.
            sampler = (sampler_for(runner.scorer.model, self.kernel) or WindowRounds)(
                self.kernel, plan, runner.scorer, runner.rng, buffers, self._temperatures(),
                shortest=runner.manifest.shortest, mean=runner.manifest.mean,
            )  # fmt: skip
        # What a GPU has recorded serves the next group too.
        runner.sampler = sampler
        self._limit(sampler)
        return sampler

    def _limit(self, sampler: Rounds) -> None:
        """Let no chain run further ahead than its epochs can be kept."""
        group = self.runner.group
        sampler.limit.fill_(min(group.end, group.epoch + len(sampler.buffers.ring_tokens)))

    def _buffers(self, plan: AcceptanceStages) -> Buffers:
        """Return the buffers of a group between epochs, with the passes of its sequences."""
        runner, scorer = self.runner, self.runner.scorer
        chains, before = runner.group.chains, scorer.passes
        chains = self.kernel.init(chains, scorer)
        buffers: Buffers
        if self._windows:
            steps = self.kernel.steps(chains)
            buffers = WindowBuffers.of(chains, steps, runner.group.epoch, AHEAD)
        else:
            slots = min(scorer.slots_for(chains), chains.tokens.shape[1])
            buffers = SiteBuffers.of(chains, len(plan.stages), runner.group.epoch, slots, AHEAD)
        spent = scorer.passes - before
        # What the buffers hold need not be kept twice.
        runner.group = runner.group.with_chains(
            chains.forget(), other_passes=runner.group.other_passes + spent
        )
        return buffers

    def _temperatures(self) -> Tensor:
        runner = self.runner
        kernels = (
            kernel_at(runner.kernel, runner.schedule, e) for e in range(runner.schedule.epochs)
        )
        values = [k.target_temperature if isinstance(k, Metropolis) else 1.0 for k in kernels]
        return torch.tensor(values, dtype=torch.float64)

    def _show(self, sampler: Rounds) -> None:
        """Let whoever watches see the chains, a few times a second."""
        if self.runner.watch is None or time.monotonic() - self._shown < _FRAME_SECONDS:
            return
        self._shown = time.monotonic()
        self.runner.show(sampler.snapshot(self.runner.group.chains))


def _alike(one: Metropolis, other: Kernel) -> bool:
    """Whether two kernels differ in nothing but the temperature of their target."""
    if not isinstance(other, Metropolis):
        return False
    return replace(other, target_temperature=one.target_temperature) == one
