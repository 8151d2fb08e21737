"""Replays: the steps of a recorded run again, one by one, with the reason of each decision.

A run records the tokens at the end of each epoch, and its random numbers are keyed by (seed, chain,
step). So an epoch of a chain can be done again by the real kernels, from recorded tokens, and its
result must be what was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from maskov.energies.base import Energy, distinct_names
from maskov.errors import RunError, refuse
from maskov.exact import with_passes
from maskov.execution.loop import ended, epoch as epoch_of, kernel_at
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import leaves, log_ratio
from maskov.kernels.compose import Mixture
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng, Rng
from maskov.runs import Run
from maskov.runs.manifest import rebuild
from maskov.runs.task_runner import filled
from maskov.tuning.tune import alone, tuned
from maskov.types import Chains, Sequences, StepInfo, padded


@dataclass(frozen=True)
class Test:
    """One test of a proposal: it passes if log u < log R − log R of the test before it.

    The last test of a proposal is by the ratio itself, earlier ones by approximations of it: over
    the `nearest` positions (None: all), and by the `experts` of the energy that are known by then.
    """

    nearest: int | None
    log_ratio: float
    log_threshold: float
    uniform: float
    passed: bool
    experts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Share:
    """A part's share of a decision: `fall` is its weight times E(x) − E(x′).

    All masked passes together are one part. `tested` says whether some test of the run had it;
    otherwise it was computed later, for the reader alone.
    """

    name: str
    weight: float
    fall: float
    tested: bool


@dataclass(frozen=True)
class Step:
    """One step of a chain: what was masked, what was proposed, and why it was accepted or not.

    `number` counts from 0 within the epoch. `old` and `new` are the tokens at `positions` before
    and as proposed. A step that changes the length has the `start` of its window: `old` tokens give
    way to `new` ones there, in whatever number. Energies are those of the kernel's target, None for
    kernels that have none; `log_ratio` is the Metropolis-Hastings ratio, None where nothing had to
    be decided. A proposal that an early test rejected had no energy in the run: it is then
    `computed_later`, for the reader alone. If the energy has experts, `shares` are those of all
    its parts; they add up to E(x) − E(x′).
    """

    number: int
    positions: list[int]
    old: list[int]
    new: list[int]
    log_q_forward: float
    log_q_reverse: float
    energy_old: float | None
    energy_new: float | None
    log_ratio: float | None
    tests: list[Test]
    accepted: bool
    computed_later: bool = False
    start: int | None = None
    shares: list[Share] = field(default_factory=list)

    @property
    def repeated(self) -> bool:
        """Whether the proposal was the sequence as it stood."""
        return self.old == self.new

    def proposed(self, tokens: Sequence[int]) -> list[int]:
        """Return what this step proposes to a sequence."""
        after = list(tokens)
        if self.start is not None:
            after[self.start : self.start + len(self.old)] = self.new
            return after
        for place, token in zip(self.positions, self.new, strict=True):
            after[place] = token
        return after


@dataclass(frozen=True)
class Replay:
    """One epoch of one chain again.

    `before` are its tokens as the epoch began, `after` as it ended. `agrees` says whether `after`,
    and the places that turned a proposal down, are those that the run recorded. On another machine
    or in other batches rounding can turn a near tie, and the replay is then not the run. `swapped`
    says that the chain then exchanged its sequence for that of a replica; `after` is its own, and
    only the places can be compared.
    """

    chain: int
    epoch: int
    kernel: str
    energy: str | None
    temperature: float | None
    before: list[int]
    steps: list[Step]
    after: list[int]
    agrees: bool
    swapped: bool = False


def stepping(kernel: Kernel, chains: Chains, rng: Rng) -> Kernel:
    """Return the part of a mixture that makes the next step of the only chain."""
    row = torch.zeros_like(chains.chain)
    while isinstance(kernel, Mixture):
        which, numbers = kernel.turn(chains, row, rng)
        part = int(which[0])
        kernel, chains = kernel.kernels[part], replace(chains, epoch_step=numbers[part])
        rng = rng.nested()
    return kernel


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
        refuse(
            (not 0 <= chain < chains, f"there is no chain {chain}: the run has {chains}."),
            (
                not 0 <= epoch < self.epochs,
                f"there is no epoch {epoch + 1}: {self.epochs} were done.",
            ),
        )

    def _kernel(self, epoch: int) -> Kernel:
        kernel = tuned(self._parts.kernel, self._manifest.tuning)
        kernel = kernel_at(kernel, self._manifest.schedule, epoch)
        # A chain moves by itself until its epoch ends.
        return alone(kernel)

    def _start(self, chain: int) -> Chains:
        """Return a chain before its first epoch, its blanks filled as the run filled them."""
        if chain not in self._starts:
            layout, row = self._parts.layout, range(chain, chain + 1)
            chains = layout.chains(self._model, row, layout.widths[chain][1])
            chains, scorer = chains.to(self._model.device), Scorer(self._model)
            start, kernel = self._manifest.config.start, self._parts.kernel
            self._starts[chain] = filled(chains, start, kernel, scorer, self._rng).forget()
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


def of_step(number: int, before: Sequence[int], info: StepInfo, kernel: Kernel) -> Step:
    """Return a step of the only chain as plain data."""
    proposal, new = info.proposal, info.proposal.tokens[0].tolist()
    positions = proposal.masked[0].nonzero().flatten().tolist()
    resized, start = proposal.resized, None
    proposed = [new[place] for place in positions]
    if resized is not None and bool(resized.removed[0].any() | (resized.size[0] > 0)):
        start = int(resized.start[0])
        proposed = new[start : start + int(resized.size[0])]
    stages = kernel.plan.stages if isinstance(kernel, Metropolis) else ()
    tests = _tests(info, kernel)
    energies = (float(one[0]) for one in (info.energy_old, info.energy_new))
    old, later = (None if math.isnan(energy) else energy for energy in energies)
    return Step(
        number, positions, [before[place] for place in positions], proposed,
        float(proposal.log_q_forward[0]), float(proposal.log_q_reverse[0]),
        old, later,
        tests[-1].log_ratio if tests and len(tests) == len(stages) else None,
        tests, bool(info.accepted[0]), start=start,
    )  # fmt: skip


def _tests(info: StepInfo, kernel: Kernel) -> list[Test]:
    """Return the tests that were taken; only the last of them can have rejected the proposal."""
    if not isinstance(kernel, Metropolis):
        return []
    plan, ratios = kernel.plan, info.log_ratio[0, : len(kernel.plan.stages)].tolist()
    taken = [ratio for ratio in ratios if not math.isnan(ratio)]
    names = distinct_names(part for _, part in plan.energy.others)
    tests = []
    for number, (ratio, before) in enumerate(zip(taken, [0.0, *taken], strict=False)):
        stage, passed = plan.stages[number], bool(info.accepted[0]) or number < len(taken) - 1
        levels = zip(names, stage.levels, plan.others, strict=True)
        known = [name for name, level, part in levels if level == len(part.stages)]
        uniform = float(info.uniform[0, number])
        tests.append(Test(stage.nearest, ratio, ratio - before, uniform, passed, known))
    return tests


def with_energies(
    steps: Sequence[Step], chains: Chains, kernel: Metropolis, scorer: Scorer
) -> list[Step]:
    """Add the energies of proposals that an early test rejected, and every part's share."""
    tokens = chains.tokens[0, : int(chains.lengths[0])].tolist()
    before, proposed = list[list[int]](), list[list[int]]()
    for step in steps:
        before.append(tokens)
        proposed.append(step.proposed(tokens))
        tokens = proposed[-1] if step.accepted else tokens
    found, energy = list(steps), kernel.energy
    missing = [index for index, step in enumerate(steps) if step.energy_new is None]
    if missing:
        given = _sequences([proposed[index] for index in missing], chains, scorer)
        new = energy(scorer.model, with_passes(energy, scorer, given)).cpu()
        scorer.check()
        told = [
            (s.energy_old, s.log_q_forward, s.log_q_reverse)
            for s in map(found.__getitem__, missing)
        ]
        old, forward, reverse = torch.tensor(told, dtype=torch.float64).unbind(1)
        beta = (chains.beta.cpu() / kernel.target_temperature).expand(len(new))
        ratios = log_ratio(old - new, forward, reverse, beta).tolist()
        for index, value, ratio in zip(missing, new.tolist(), ratios, strict=True):
            found[index] = replace(
                found[index], energy_new=value, log_ratio=ratio, computed_later=True
            )
    novel = [index for index, step in enumerate(found) if not step.repeated]
    if novel and not energy.sums_over_passes:
        rows = [one[index] for one in (before, proposed) for index in novel]
        given = _sequences(rows, chains, scorer)
        values = [part(scorer.model, given).view(2, -1) for _, part in energy.others]
        falls = [(old - new).tolist() for old, new in values]
        for index, *fall in zip(novel, *falls, strict=True):
            found[index] = replace(found[index], shares=_shares(found[index], energy, fall))
    return found


def _shares(step: Step, energy: Energy, falls: Sequence[float]) -> list[Share]:
    """Return each part's share of a decision."""
    known = {name for test in step.tests for name in test.experts}
    names = distinct_names(part for _, part in energy.others)
    shares = [
        Share(name, weight, weight * fall, name in known)
        for name, (weight, _), fall in zip(names, energy.others, falls, strict=True)
    ]
    if energy.masked is not None and step.energy_old is not None and step.energy_new is not None:
        # What the experts leave of the fall.
        fall = step.energy_old - step.energy_new - sum(share.fall for share in shares)
        tested = bool(step.tests) and not step.computed_later
        shares.insert(0, Share(str(energy.masked), 1.0, fall, tested))
    return shares


def _sequences(rows: Sequence[list[int]], chains: Chains, scorer: Scorer) -> Sequences:
    """Return sequences of the only chain."""
    return replace(
        padded(rows, scorer.model.mask_id, chains.tokens.device),
        source=chains.source.expand(len(rows)),
        reference=chains.reference.expand(len(rows), -1),
    )
