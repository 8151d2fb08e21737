"""Take the groups of a run through epochs in which each chain goes at its own pace.

A lone group flies through all epochs that its kernel allows without stopping; what its chains came
to is written as soon as the slowest has finished an epoch. Several groups take turns, an epoch
each, and rest on the host in between.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from maskov.engine import Engine
from maskov.errors import Interrupted, ModelError
from maskov.flow import Buffers, Flow, low_terms
from maskov.flow.pilot import CHOICES, choose
from maskov.kernels import Delayed, Kernel, Metropolis
from maskov.run.describe import kernel_at
from maskov.types import Tensor

if TYPE_CHECKING:
    from maskov.run.loop import Loop

# Epochs that the fastest chain may be ahead of the slowest.
_AHEAD = 4
# Epochs of the pilot, and how many must be left for its choice to be of use.
_PILOT = 2
_FRAME_SECONDS = 1 / 12


class Flight:
    """One stretch of epochs of a loop, flown with one kernel."""

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
        useful = end - progress.epoch >= 2 * _PILOT or progress.piloted
        undecided = kernel.delayed.nearest is None and not progress.decided
        self.pilot = bool(undecided and useful)
        if self.pilot:
            end = min(end, progress.epoch + _PILOT - progress.piloted)
        if len(progress.groups) > 1:
            end = progress.epoch + 1
        loop.progress = replace(progress, end=end)

    def run(self) -> None:
        """Fly every group to the end of the stretch, one after the other."""
        loop = self.loop
        while loop.progress.group < len(loop.progress.groups):
            self._fly()
        if len(loop.progress.groups) > 1:
            loop.end_epoch()
        else:
            loop.progress = replace(loop.progress, group=0, row={})
        if self.pilot:
            self._learn()

    def _learn(self) -> None:
        """Let the pilot choose once it has seen enough."""
        loop = self.loop
        seen = _PILOT if len(loop.progress.groups) == 1 else 1
        progress = replace(loop.progress, piloted=loop.progress.piloted + seen)
        if progress.piloted >= _PILOT:
            nearest, gain = choose(progress.pilot)
            note = {"nearest": nearest, "moves_per_pass": round(gain, 3), "since": progress.epoch}
            loop.store.note("pilot", note)
            progress = replace(progress, nearest=nearest)
        loop.progress = progress

    def _delayed(self) -> Delayed:
        """Return the early tests of this stretch."""
        progress, asked = self.loop.progress, self.kernel.delayed
        if self.pilot:
            return Delayed(0)
        if asked.nearest is None:
            return replace(asked, nearest=max(progress.nearest, 0))
        return asked

    def _fly(self) -> None:
        loop = self.loop
        flow = self._take_off()
        alone = len(loop.progress.groups) == 1
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
            while alone and loop.progress.epoch < min(slowest, loop.progress.end):
                loop.write(flow.row(loop.progress.epoch))
            if slowest >= loop.progress.end:
                break
            self._limit(flow)
            self._keep(flow)
            loop.save_if_due()
            self._show(flow)
        progress = loop.progress
        if self.pilot:
            progress = replace(progress, pilot=progress.pilot + flow.buffers.pilot.cpu())
        if not alone:
            progress = progress.with_row(flow.row(progress.epoch))
        loop.end_group(progress, flow.state(progress.state))

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
                shortest=min(map(len, loop.layout.tokens)),
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
        state, before = loop.progress.state.to(engine.model.device), engine.passes
        if state.energy is None or state.sites is None:
            state = self.kernel.init(state, engine)
        # The pilot must not see proposals that only further lanes would test.
        lanes = 1 if self.pilot else loop.settings.lanes or engine.lanes_for(state)
        lanes = min(lanes, state.tokens.shape[1])
        ring = _AHEAD if len(loop.progress.groups) == 1 else 1
        buffers = Buffers.of(
            state, loop.progress.epoch, lanes, stages, ring, len(CHOICES) if self.pilot else 0
        )
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
        listener = self.loop.listener
        if listener is None or time.monotonic() - self._shown < _FRAME_SECONDS:
            return
        self._shown = time.monotonic()
        state = flow.glance(self.loop.progress.state)
        listener.moved(state, self.loop.progress.epoch, self.loop.engine.passes)


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
    from maskov.flow.static import StaticFlow

    return StaticFlow


def _alike(one: Metropolis, other: Kernel) -> bool:
    """Whether two kernels differ in nothing but the temperature of their target."""
    if not isinstance(other, Metropolis):
        return False
    return replace(other, target_temperature=one.target_temperature) == one
