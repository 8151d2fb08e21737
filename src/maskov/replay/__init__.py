"""Replays: the steps of a recorded run again, one by one, with the reason of each decision.

An epoch of a chain is done again by the real kernels, from recorded tokens, with the same numbers.

A run records the tokens at the end of each epoch, and its random numbers are keyed by (seed, chain,
step). So any epoch can be done again by itself, and its result must be what was recorded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from maskov.errors import InputError, RunError
from maskov.execution.loop import ended, kernel_at
from maskov.execution.loop import epoch as epoch_of
from maskov.kernels import Exchange, Kernel, Metropolis
from maskov.kernels.base import leaves
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.replay.steps import Replay, Share, Step, Test, of_step, stepping, with_energies
from maskov.runs import Run
from maskov.runs.rebuild import rebuild
from maskov.starts import fill
from maskov.tuning.tune import tuned
from maskov.types import Chains

__all__ = ["Replay", "Replayer", "Share", "Step", "Test"]


def why_not(run: Run) -> str | None:
    """Say what keeps the chains of a run from being replayed, if anything."""
    if run.manifest.particles:
        return "a particle is drawn again together with its whole population"
    if "rejected" not in run.store.traced():
        return "its tokens were not traced, since the run is too large"
    if run.manifest.config.kernel.get("unnamed"):
        return "it is unknown how to make its kernel again"
    return None


class Replayer:
    """The chains of one run, to be replayed with its model."""

    def __init__(
        self,
        run: Run,
        model: MaskedModel,
        trust_parts: bool = False,
        allow_download: bool = False,
    ) -> None:
        reason = why_not(run)
        if reason is not None:
            raise RunError(f"this run cannot be replayed: {reason}.")
        self._manifest, self._traces, self._model = run.manifest, run.traces, model
        self._parts = rebuild(self._manifest, model, trust_parts, allow_download)
        self._rng = CounterRng(self._manifest.config.seed)
        self._starts: dict[int, Chains] = {}
        held = self._traces["tokens"]
        most = max(model.vocabulary_size - 1, model.mask_id)
        if (
            held.min(initial=0) < 0
            or held.max(initial=0) > most
            or held.shape[2] < self._parts.layout.width
        ):
            raise RunError("this run cannot be replayed: its traces hold no tokens of its model.")
        self.epochs = int((self._traces["steps"].sum(1) > 0).sum())

    def tokens(self, chain: int) -> list[list[int]]:
        """Return the tokens of a chain at the end of each epoch that was done."""
        self._check(chain, 0)
        rows = self._traces["tokens"][: self.epochs, chain].tolist()
        lengths = self._traces["lengths"][: self.epochs, chain].tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def free(self, chain: int) -> list[bool]:
        """Return which positions of a chain may change; none are told where lengths do."""
        layout = self._parts.layout
        return [] if layout.resizable else layout.free[chain]

    def source(self, chain: int) -> int:
        """Return the line of the user's input that a chain belongs to."""
        return self._parts.layout.template[chain]

    def epoch(self, chain: int, epoch: int) -> Replay:
        """Run one epoch of one chain again; both are counted from 0."""
        self._check(chain, epoch)
        chains = self._start(chain)
        if self._parts.kernel.fills_blanks:
            # What is masked depends on confidences, which are not recorded: from the beginning.
            for earlier in range(epoch):
                chains, _ = self._lock_step(self._kernel(earlier), chains)
        elif epoch:
            chains = self._recorded(chains, chain, epoch)
        kernel = self._kernel(epoch)
        after, steps = self._lock_step(kernel, chains)
        agrees = self._agrees(chain, epoch, after, steps)
        # All parts of a mixture that has an energy share it.
        decides = leaves(kernel)[0]
        if isinstance(decides, Metropolis) and kernel.energy is not None:
            steps = with_energies(steps, chains, decides, Scorer(self._model))
        return Replay(
            chain,
            epoch,
            self._manifest.kernel,
            None if kernel.energy is None else str(kernel.energy),
            None if decides.target is None else decides.target.temperature,
            _tokens(chains),
            steps,
            _tokens(after),
            agrees,
            self._swapped(chain, epoch),
        )

    def _check(self, chain: int, epoch: int) -> None:
        chains = len(self._parts.layout.tokens)
        if not 0 <= chain < chains:
            raise InputError(f"there is no chain {chain}: the run has {chains}.")
        if not 0 <= epoch < self.epochs:
            raise InputError(f"there is no epoch {epoch + 1}: {self.epochs} were done.")

    def _kernel(self, epoch: int) -> Kernel:
        kernel = tuned(self._parts.kernel, self._manifest.tuning)
        kernel = kernel_at(kernel, self._manifest.schedule, epoch)
        # A chain moves by itself until its epoch ends.
        return kernel.kernel if isinstance(kernel, Exchange) else kernel

    def _start(self, chain: int) -> Chains:
        """Return a chain before its first epoch, its blanks filled as the run filled them."""
        if chain not in self._starts:
            kernel, device = self._parts.kernel, self._model.device
            layout = self._parts.layout
            row = range(chain, chain + 1)
            chains = layout.chains(self._model, row, layout.widths[chain][1]).to(device)
            blank = bool((chains.tokens == self._model.mask_id)[chains.inside].any())
            if blank and not kernel.fills_blanks:
                start, scorer = self._manifest.config.start, Scorer(self._model)
                chains = fill(chains, start, kernel.conditional, scorer, self._rng).forget()
            self._starts[chain] = chains
        return self._starts[chain]

    def _recorded(self, start: Chains, chain: int, epoch: int) -> Chains:
        """Return a chain as the record has it at the beginning of an epoch."""
        tokens = self._traces["tokens"][epoch - 1, chain, : start.tokens.shape[1]]
        done = int(self._traces["steps"][:epoch, chain].sum())
        here = torch.as_tensor(tokens.astype(np.int64), device=start.tokens.device)
        chains = replace(start, tokens=here[None], step=start.step + done)
        if not start.resizable:
            return chains
        sizes = self._traces["sizes"][epoch - 1, chain].tolist()
        free, region = self._parts.layout.at_sizes(chain, sizes)
        width, length = start.tokens.shape[1], len(free)
        return replace(
            chains,
            lengths=torch.full_like(start.lengths, length),
            free=torch.tensor([free + [False] * (width - length)], device=here.device),
            region=torch.tensor([region + [-1] * (width - length)], device=here.device),
        )

    def _lock_step(self, kernel: Kernel, chains: Chains) -> tuple[Chains, list[Step]]:
        """Run an epoch by the kernel's own steps."""
        scorer, steps, before = Scorer(self._model), list[Step](), chains.tokens[0].tolist()
        for after, info in epoch_of(kernel, chains, scorer, self._rng):
            decides = stepping(kernel, chains, self._rng)
            steps.append(of_step(len(steps), before, info, decides))
            before, chains = after.tokens[0].tolist(), after
        scorer.check()
        return ended(chains).forget(), steps

    def _agrees(self, chain: int, epoch: int, after: Chains, steps: list[Step]) -> bool:
        """Compare with what the run recorded: the tokens, and where it rejected."""
        width = after.tokens.shape[1]
        recorded = self._traces["tokens"][epoch, chain, :width].tolist()
        turned = np.zeros(width, dtype=np.bool_)
        for step in steps:
            turned[step.positions] |= not step.accepted
        rejected = self._traces["rejected"][epoch, chain, :width]
        as_long = int(after.lengths[0]) == int(self._traces["lengths"][epoch, chain])
        same = (as_long and recorded == after.tokens[0].tolist()) or self._swapped(chain, epoch)
        return same and bool((turned == rejected).all())

    def _swapped(self, chain: int, epoch: int) -> bool:
        """Whether the chain exchanged its sequence at the end of an epoch."""
        swaps = self._traces.get("swap_accepted")
        return swaps is not None and bool(swaps[epoch, chain, 0])


def _tokens(chains: Chains) -> list[int]:
    """Return the tokens of the only chain."""
    tokens: list[int] = chains.tokens[0, : int(chains.lengths[0])].tolist()
    return tokens
