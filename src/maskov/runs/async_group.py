"""Take a group through epochs in which each chain goes at its own pace.

It flies through all epochs that its kernel allows; what its chains came to is written as soon as
the slowest has finished an epoch. A turn may end anywhere on the way: the buffers are then kept as
they are, and the next turn goes on with the same rounds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from maskov.errors import Interrupted, ModelError
from maskov.execution.async_state import low_terms
from maskov.execution.asynchronous import Flow
from maskov.execution.buffers import Buffers
from maskov.execution.pilot import CHOICES
from maskov.execution.scorer import Engine
from maskov.kernels import Delayed, Kernel, Metropolis
from maskov.runs.describe import kernel_at
from maskov.types import Tensor

if TYPE_CHECKING:
    from maskov.runs.loop import Loop

# Epochs that the fastest chain may be ahead of the slowest.
AHEAD = 4
# Epochs of the pilot, and how many must be left for its choice to be of use.
_PILOT = 2
_FRAME_SECONDS = 1 / 12


class Flight:
    """One stretch of epochs of a group, flown with one kernel."""

    def __init__(self, loop: Loop, kernel: Metropolis) -> None:
        self.loop = loop
        self.kernel = kernel
        self._shown = 0.0
        progress = loop.progress
        if progress.flight:
            self.pilot = bool(len(progress.flight["pilot"]))
            return
        end, epochs = progress.epoch + 1, loop.schedule.epochs
        while end < epochs and _alike(kernel, kernel_at(loop.kernel, loop.schedule, end)):
            end += 1
        useful = end - progress.epoch >= 2 * _PILOT
        self.pilot = kernel.delayed.nearest is None and not progress.piloted and useful
        if self.pilot:
            end = min(end, progress.epoch + _PILOT)
        loop.progress = replace(progress, end=end)

    def _delayed(self) -> Delayed:
        """Return the early tests of this stretch."""
        return early_tests(self.kernel.delayed, self.pilot, self.loop.progress.nearest)

    def run(self) -> None:
        """Fly the group to the end of the stretch, or until its turn is over."""
        loop = self.loop
        flow = self._take_off()
        self._keep(flow)
        while True:
            try:
                loop.engine.heed()
                flow.advance()
            except Interrupted:
                self._keep(flow)
                raise
            except torch.OutOfMemoryError as error:
                raise ModelError(
                    "the GPU ran out of memory in the middle of a round; run again with a smaller "
                    "--token-budget or --resident."
                ) from error
            slowest = flow.slowest()
            while loop.progress.epoch < min(slowest, loop.progress.end):
                loop.write(flow.row(loop.progress.epoch))
            if slowest >= loop.progress.end:
                break
            self._limit(flow)
            self._keep(flow)
            loop.end_if_due(loop.progress.epoch)
            self._show(flow)
        progress = loop.progress
        if self.pilot:
            seen = flow.buffers.pilot.to("cpu", copy=True)  # others will be taken on board
            progress = replace(progress, pilot=seen, piloted=True)
        loop.progress = progress.with_state(flow.state(progress.state), flight={})
        loop.end_if_due(loop.progress.epoch)

    def _keep(self, flow: Flow) -> None:
        self.loop.progress = replace(self.loop.progress, flight=flow.buffers.tensors())

    def _take_off(self) -> Flow:
        """Return the group in flight, as it was left or from its start."""
        loop = self.loop
        stages = self._delayed().stages
        low = loop.engine.low(self._delayed().precision)
        if loop.progress.flight:
            buffers = Buffers.load(loop.progress.flight)
        else:
            buffers = self._board(len(stages), low)
        flow = loop.flown
        known = flow is not None and _alike(flow.kernel, self.kernel) and flow.stages == stages
        if flow is None or not known or not flow.reload(buffers):
            flow = flow_for(loop.engine)(
                self.kernel, stages, loop.engine, low, loop.draws, buffers, self._temperatures(),
                shortest=loop.settings.shortest,
            )  # fmt: skip
        # What a GPU has recorded serves the next group too.
        loop.flown = flow
        self._limit(flow)
        return flow

    def _limit(self, flow: Flow) -> None:
        """Let no chain run further ahead than its epochs can be kept."""
        progress = self.loop.progress
        flow.limit.fill_(min(progress.end, progress.epoch + len(flow.buffers.ring_tokens)))

    def _board(self, stages: int, low: Engine | None) -> Buffers:
        """Bring a resting group to the device, with the passes of its sequences."""
        loop, engine = self.loop, self.loop.engine
        state, before = loop.progress.state, engine.passes
        if state.energy is None or state.sites is None:
            state = self.kernel.init(state, engine)
        # The pilot must not see proposals that only further lanes would test.
        lanes = 1 if self.pilot else loop.settings.lanes or engine.lanes_for(state)
        lanes = min(lanes, state.tokens.shape[1])
        choices = len(CHOICES) if self.pilot else 0
        buffers = Buffers.of(state, loop.progress.epoch, lanes, stages, AHEAD, choices)
        if low is not None:
            buffers.low_term.copy_(low_terms(low, self.kernel.energy, state))
        spent = engine.passes - before
        # What the buffers hold need not be kept twice.
        loop.progress = loop.progress.with_state(
            state.forget(), other_passes=loop.progress.other_passes + spent
        )
        return buffers

    def _temperatures(self) -> Tensor:
        loop = self.loop
        kernels = (kernel_at(loop.kernel, loop.schedule, e) for e in range(loop.schedule.epochs))
        values = [k.target_temperature if isinstance(k, Metropolis) else 1.0 for k in kernels]
        return torch.tensor(values, dtype=torch.float64)

    def _show(self, flow: Flow) -> None:
        """Let whoever watches see the chains, a few times a second."""
        if self.loop.watch is None or time.monotonic() - self._shown < _FRAME_SECONDS:
            return
        self._shown = time.monotonic()
        self.loop.show(flow.glance(self.loop.progress.state))


def early_tests(asked: Delayed, pilot: bool, chosen: int) -> Delayed:
    """Return the early tests of a stretch: none for a pilot, what it chose if it had the choice."""
    if pilot:
        return Delayed(0)
    return replace(asked, nearest=max(chosen, 0)) if asked.nearest is None else asked


def delayed_in(manifest: dict[str, Any], asked: Delayed, epoch: int) -> Delayed:
    """Return the early tests that a run had in one epoch, in flight."""
    pilot = manifest.get("pilot")
    if asked.nearest is not None or pilot is None:
        return replace(asked, nearest=asked.nearest or 0)
    since = pilot.get("since", manifest["schedule"]["forced_epochs"] + _PILOT)
    if epoch >= since:
        return replace(asked, nearest=pilot["nearest"])
    return Delayed(0) if epoch >= since - _PILOT else replace(asked, nearest=0)


def flow_for(engine: Engine) -> type[Flow]:
    """Return the way of flying that suits the engine's device."""
    model = engine.model
    if model.device.type != "cuda" or not model.packs:
        return Flow
    from maskov.execution.cuda_graphs import StaticFlow

    return StaticFlow


def _alike(one: Metropolis, other: Kernel) -> bool:
    """Whether two kernels differ in nothing but the temperature of their target."""
    if not isinstance(other, Metropolis):
        return False
    return replace(other, target_temperature=one.target_temperature) == one
