"""Replay an epoch of a chain: the real kernels, from recorded tokens, with the same numbers.

A run records the tokens at the end of each epoch, and its random numbers are keyed by (seed, chain,
step). So any epoch can be done again by itself, and what it comes to must be what was recorded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from maskov.errors import InputError, RunError
from maskov.execution.async_state import low_terms
from maskov.execution.async_tests import Settled
from maskov.execution.asynchronous import Flow
from maskov.execution.buffers import Buffers
from maskov.execution.scorer import Engine
from maskov.kernels import Delayed, Kernel, LowestConfidence, Metropolis
from maskov.models.base import MaskedModel
from maskov.random import CounterDraws
from maskov.replay.record import Replay, Step
from maskov.replay.steps import of_flight, of_step, with_energies
from maskov.runs import Run
from maskov.runs.async_group import delayed_in
from maskov.runs.describe import kernel_at
from maskov.runs.rebuild import rebuild
from maskov.starts import fill
from maskov.types import ChainState


def why_not(run: Run) -> str | None:
    """Say what keeps the chains of a run from being replayed, if anything."""
    manifest = run.manifest
    if not run.store.traced() >= {"tokens", "rejected"}:
        return "its tokens were not traced (the run is too large, or older than that)"
    if manifest["kernel"].get("custom"):
        return "its kernel was made elsewhere and cannot be built again"
    if "asynchronous" not in manifest or "precision" not in manifest["model"]:
        return "it was made by an older maskov, which did not record how its chains moved"
    return None


class Replayer:
    """The chains of one run, to be replayed with its model."""

    def __init__(self, run: Run, model: MaskedModel) -> None:
        reason = why_not(run)
        if reason is not None:
            raise RunError(f"this run cannot be replayed: {reason}.")
        self._manifest, self._traces, self._model = run.manifest, run.traces, model
        self._parts = rebuild(self._manifest, model)
        self._draws = CounterDraws(int(self._manifest["seed"]))
        self._starts: dict[int, ChainState] = {}
        held = self._traces["tokens"]
        most = max(model.vocabulary_size - 1, model.mask_id)
        if (
            held.min(initial=0) < 0
            or held.max(initial=0) > most
            or held.shape[2] < max(map(len, self._parts.layout.tokens))
        ):
            raise RunError("this run cannot be replayed: its traces hold no tokens of its model.")
        self.epochs = int((self._traces["steps"].sum(1) > 0).sum())

    def tokens(self, chain: int) -> list[list[int]]:
        """Return the tokens of a chain at the end of each epoch that was done."""
        self._check(chain, 0)
        length = len(self._parts.layout.tokens[chain])
        rows: list[list[int]] = self._traces["tokens"][: self.epochs, chain, :length].tolist()
        return rows

    def free(self, chain: int) -> list[bool]:
        """Return which positions of a chain may change."""
        return self._parts.layout.free[chain]

    def source(self, chain: int) -> int:
        """Return the line of the user's input that a chain belongs to."""
        return self._parts.layout.template[chain]

    def epoch(self, chain: int, epoch: int) -> Replay:
        """Do one epoch of one chain again; both are counted from 0."""
        self._check(chain, epoch)
        state = self._start(chain)
        if isinstance(self._parts.kernel.positions, LowestConfidence):
            # What is masked depends on confidences, which are not recorded: from the beginning.
            for earlier in range(epoch):
                state, _ = self._lock_step(self._kernel(earlier), state)
        elif epoch:
            state = self._recorded(state, chain, epoch)
        kernel = self._kernel(epoch)
        if isinstance(kernel, Metropolis) and kernel.flows and self._manifest["asynchronous"]:
            after, steps = self._fly(kernel, state, epoch)
        else:
            after, steps = self._lock_step(kernel, state)
        target = isinstance(kernel, Metropolis)
        return Replay(
            chain,
            epoch,
            str(self._manifest["kernel"]["name"]),
            str(kernel.energy) if isinstance(kernel, Metropolis) else None,
            kernel.target_temperature if isinstance(kernel, Metropolis) else None,
            state.tokens[0].tolist(),
            self._completed(kernel, state, steps) if target else steps,
            after.tokens[0].tolist(),
            self._agrees(chain, epoch, after, steps),
        )

    def _check(self, chain: int, epoch: int) -> None:
        chains = len(self._parts.layout.tokens)
        if not 0 <= chain < chains:
            raise InputError(f"there is no chain {chain}: the run has {chains}.")
        if not 0 <= epoch < self.epochs:
            raise InputError(f"there is no epoch {epoch + 1}: {self.epochs} were done.")

    def _kernel(self, epoch: int) -> Kernel:
        return kernel_at(self._parts.kernel, self._parts.schedule, epoch)

    def _start(self, chain: int) -> ChainState:
        """Return a chain before its first epoch, its blanks filled as the run filled them."""
        if chain not in self._starts:
            kernel, device = self._parts.kernel, self._model.device
            layout = self._parts.layout
            row = range(chain, chain + 1)
            state = layout.state(self._model, row, len(layout.tokens[chain])).to(device)
            blank = bool((state.tokens == self._model.mask_id).any())
            if blank and not isinstance(kernel.positions, LowestConfidence):
                start, engine = str(self._manifest["start"]), Engine(self._model)
                state = fill(state, start, kernel.proposal, engine, self._draws).forget()
            self._starts[chain] = state
        return self._starts[chain]

    def _recorded(self, start: ChainState, chain: int, epoch: int) -> ChainState:
        """Return a chain as the record has it at the beginning of an epoch."""
        tokens = self._traces["tokens"][epoch - 1, chain, : start.tokens.shape[1]]
        done = int(self._traces["steps"][:epoch, chain].sum())
        here = torch.as_tensor(tokens.astype(np.int64), device=start.tokens.device)
        return replace(start, tokens=here[None], step=start.step + done)

    def _lock_step(self, kernel: Kernel, state: ChainState) -> tuple[ChainState, list[Step]]:
        """Do an epoch by the kernel's own steps."""
        engine = Engine(self._model)
        state = kernel.positions.begin(kernel.init(state, engine), self._draws)
        row, steps = torch.zeros_like(state.chain), []
        for number in range(int(kernel.positions.steps(state)[0])):
            masked = kernel.positions.masked(state, row, number, self._draws)
            before = state.tokens[0].tolist()
            state, info = kernel.step(state, row, masked, engine, self._draws)
            steps.append(of_step(number, before, info))
        engine.check()
        return state.forget(), steps

    def _fly(
        self, kernel: Metropolis, state: ChainState, epoch: int
    ) -> tuple[ChainState, list[Step]]:
        """Do an epoch as chains do that go at their own pace, with the early tests they had."""
        engine = Engine(self._model)
        delayed = delayed_in(self._manifest, kernel.delayed, epoch)
        stages, low = delayed.stages, engine.low(delayed.precision)
        known = replace(kernel, delayed=Delayed(0)).init(state, engine)
        buffers = Buffers.of(known, epoch, 1, len(stages), ring=1, choices=0)
        if low is not None:
            buffers.low_term.copy_(low_terms(low, kernel.energy, known))
        temperatures = torch.full((epoch + 1,), kernel.target_temperature, dtype=torch.float64)
        heard: list[Settled] = []
        flow = Flow(
            kernel, stages, engine, low, self._draws, buffers, temperatures, observer=heard.append
        )
        flow.limit.fill_(epoch + 1)
        while flow.slowest() <= epoch:
            flow.advance()
        engine.check()
        return flow.glance(state), of_flight(heard, int(state.step[0]), stages)

    def _completed(self, kernel: Kernel, state: ChainState, steps: list[Step]) -> list[Step]:
        assert isinstance(kernel, Metropolis)
        return with_energies(steps, state, kernel, Engine(self._model))

    def _agrees(self, chain: int, epoch: int, after: ChainState, steps: list[Step]) -> bool:
        """Compare with what the run recorded: the tokens, and where it rejected."""
        width = after.tokens.shape[1]
        recorded = self._traces["tokens"][epoch, chain, :width].tolist()
        turned = np.zeros(width, dtype=np.bool_)
        for step in steps:
            turned[step.positions] |= not step.accepted
        rejected = self._traces["rejected"][epoch, chain, :width]
        return recorded == after.tokens[0].tolist() and bool((turned == rejected).all())
