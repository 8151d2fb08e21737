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

from maskov.energies.base import distinct_names
from maskov.errors import RunError, refuse
from maskov.exact import with_passes
from maskov.kernels import Kernel, Metropolis, Mixture
from maskov.kernels.base import ended, epoch as epoch_of, kernel_at, leaves, log_ratio
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng, Rng
from maskov.runs import Run
from maskov.runs.preparation import rebuild
from maskov.runs.task_runner import filled
from maskov.tuning import tuned
from maskov.types import Chains, Proposal, StepInfo, padded


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

    `number` counts from 0 within the epoch. `before` is the sequence as it stood, `proposed` the
    proposed one; `old` and `new` are their tokens at `positions`. A step that changes the length
    has the `start` of its window: `old` tokens give way to `new` ones there, in whatever number.
    Energies are those of the kernel's target, None for kernels that have none; `log_ratio` is the
    Metropolis-Hastings ratio, None where nothing had to be decided. A proposal that an early test
    rejected had no energy in the run: it is then `computed_later`, for the reader alone. If the
    energy has experts, `shares` are those of all its parts; they add up to E(x) − E(x′).
    """

    number: int
    before: list[int]
    proposed: list[int]
    positions: list[int]
    old: list[int]
    new: list[int]
    start: int | None
    log_q_forward: float
    log_q_reverse: float
    tests: list[Test]
    accepted: bool
    computed_later: bool
    energy_old: float | None = None
    energy_new: float | None = None
    log_ratio: float | None = None
    shares: list[Share] = field(default_factory=list)

    @property
    def repeated(self) -> bool:
        """Whether the proposal was the sequence as it stood."""
        return self.old == self.new


@dataclass(frozen=True)
class Replay:
    """One epoch of one chain again.

    `before` are its tokens as the epoch began, `after` as it ended. `agrees` says whether `after`,
    and the places that turned a proposal down, are those that the run recorded. On another machine
    or in other batches rounding can turn a near tie, and the replay is then not the run.
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


def why_not(run: Run) -> str | None:
    """Say what keeps the chains of a run from being replayed, if anything."""
    reasons = {
        "a particle is drawn again together with its whole population": run.manifest.particles,
        "its tokens were not traced, since the run is too large": (
            "rejected" not in run.store.traced()
        ),
        "it is unknown how to make its kernel again": run.manifest.config.kernel.get("unnamed"),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


class Replayer:
    """The chains of one run, to be replayed with its model."""

    def __init__(
        self,
        run: Run,
        model: MaskedModel,
        trust_parts: bool = False,
        allow_download: bool = False,
    ) -> None:
        if (reason := why_not(run)) is not None:
            raise RunError(f"this run cannot be replayed: {reason}.")
        self._manifest, self._traces, self._model = run.manifest, run.traces, model
        kernel, self.layout = rebuild(self._manifest, model, trust_parts, allow_download)
        self._kernel = tuned(kernel, self._manifest.tuning)
        self._rng = CounterRng(self._manifest.config.seed)
        held = self._traces["tokens"]
        most = max(model.vocabulary_size - 1, model.mask_id)
        refuse(
            (
                held.min(initial=0) < 0
                or held.max(initial=0) > most
                or held.shape[2] < self.layout.width,
                "this run cannot be replayed: its traces hold no tokens of its model.",
            ),
            kind=RunError,
        )
        self.epochs = int((self._traces["steps"].sum(1) > 0).sum())

    def tokens(self, chain: int) -> list[list[int]]:
        """Return the tokens of a chain at the end of each epoch that was done."""
        self._check(chain, 0)
        rows, lengths = (self._traces[name][: self.epochs, chain] for name in ("tokens", "lengths"))
        return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]

    def epoch(self, chain: int, epoch: int) -> Replay:
        """Run one epoch of one chain again; both are counted from 0."""
        self._check(chain, epoch)
        chains = self._start(chain)
        if self._kernel.fills_blanks:
            # What is masked depends on confidences, which are not recorded: from the beginning.
            for earlier in range(epoch):
                chains, _ = self._steps(earlier, chains)
        elif epoch:
            chains = self._recorded(chains, chain, epoch)
        after, steps = self._steps(epoch, chains)
        # The tokens, and where the run rejected, as they were recorded.
        width = after.tokens.shape[1]
        rejected = np.zeros(width, dtype=np.bool_)
        for step in steps:
            rejected[step.positions] |= not step.accepted
        same = [int(after.lengths[0]) == int(self._traces["lengths"][epoch, chain])] + [
            np.array_equal(self._traces[name][epoch, chain, :width], found)
            for name, found in (("tokens", after.tokens[0].cpu()), ("rejected", rejected))
        ]
        # All parts of a mixture that has an energy share it.
        decides = leaves(kernel_at(self._kernel, self._manifest.schedule, epoch))[0]
        if isinstance(decides, Metropolis):
            steps = with_energies(steps, chains, decides, Scorer(self._model))
        target = decides.target
        return Replay(
            chain,
            epoch,
            self._manifest.kernel,
            None if target is None else str(target.energy),
            None if target is None else target.temperature,
            _tokens(chains),
            steps,
            _tokens(after),
            all(same),
        )

    def _check(self, chain: int, epoch: int) -> None:
        chains = len(self.layout.starts)
        refuse(
            (not 0 <= chain < chains, f"there is no chain {chain}: the run has {chains}."),
            (
                not 0 <= epoch < self.epochs,
                f"there is no epoch {epoch + 1}: {self.epochs} were done.",
            ),
        )

    def _start(self, chain: int) -> Chains:
        """Return a chain before its first epoch, its blanks filled as the run filled them."""
        width = self.layout.starts[chain].widths[1]
        chains = self.layout.chains(self._model, range(chain, chain + 1), width)
        chains, scorer = chains.to(self._model.device), Scorer(self._model)
        return filled(chains, self._manifest.config.start, self._kernel, scorer, self._rng).forget()

    def _recorded(self, start: Chains, chain: int, epoch: int) -> Chains:
        """Return a chain as the record has it at the beginning of an epoch."""
        width, device = start.tokens.shape[1], start.tokens.device
        tokens = self._traces["tokens"][epoch - 1, chain, :width].astype(np.int64)
        done = int(self._traces["steps"][:epoch, chain].sum())
        chains = replace(
            start, tokens=torch.as_tensor(tokens, device=device)[None], step=start.step + done
        )
        if not start.resizable:
            return chains
        free, region = self.layout.starts[chain].at_sizes(
            self._traces["sizes"][epoch - 1, chain].tolist()
        )
        rest = width - len(free)
        return replace(
            chains,
            lengths=torch.full_like(start.lengths, len(free)),
            free=torch.tensor([free + [False] * rest], device=device),
            region=torch.tensor([region + [-1] * rest], device=device),
        )

    def _steps(self, epoch: int, chains: Chains) -> tuple[Chains, list[Step]]:
        """Run an epoch by the kernel's own steps."""
        kernel = kernel_at(self._kernel, self._manifest.schedule, epoch)
        scorer, steps = Scorer(self._model), list[Step]()
        for after, info in epoch_of(kernel, chains, scorer, self._rng):
            decides = stepping(kernel, chains, self._rng)
            steps.append(of_step(len(steps), _tokens(chains), info, decides))
            chains = after
        scorer.check()
        return ended(chains).forget(), steps


def stepping(kernel: Kernel, chains: Chains, rng: Rng) -> Kernel:
    """Return the part of a mixture that makes the next step of the only chain."""
    row = torch.zeros_like(chains.chain)
    while isinstance(kernel, Mixture):
        which, numbers = kernel.turn(chains, row, rng)
        part = int(which[0])
        kernel, chains = kernel.kernels[part], replace(chains, epoch_step=numbers[part])
        rng = rng.nested()
    return kernel


def _tokens(chains: Chains | Proposal) -> list[int]:
    """Return the tokens of the only chain."""
    tokens: list[int] = chains.tokens[0, : int(chains.lengths[0])].tolist()
    return tokens


def of_step(number: int, before: list[int], info: StepInfo, kernel: Kernel) -> Step:
    """Return a step of the only chain as plain data, without energies."""
    proposal, proposed = info.proposal, _tokens(info.proposal)
    positions = proposal.masked[0].nonzero().flatten().tolist()
    resized, start = proposal.resized, None
    if resized is not None and bool(resized.removed[0].any() | (resized.size[0] > 0)):
        start = int(resized.start[0])
        new = proposed[start : start + int(resized.size[0])]
    else:
        new = [proposed[place] for place in positions]
    tests = _tests(info, kernel) if isinstance(kernel, Metropolis) else []
    stages = len(kernel.plan.stages) if isinstance(kernel, Metropolis) else 0
    return Step(
        number, before, proposed, positions, [before[place] for place in positions], new, start,
        float(proposal.log_q_forward[0]), float(proposal.log_q_reverse[0]), tests,
        bool(info.accepted[0]), 0 < len(tests) < stages,
    )  # fmt: skip


def _tests(info: StepInfo, kernel: Metropolis) -> list[Test]:
    """Return the tests that were taken; only the last of them can have rejected the proposal."""
    plan, ratios = kernel.plan, info.log_ratio[0, : len(kernel.plan.stages)].tolist()
    taken = [ratio for ratio in ratios if not math.isnan(ratio)]
    names = distinct_names(part for _, part in plan.energy.others)
    tests = []
    for number, (ratio, before) in enumerate(zip(taken, [0.0, *taken], strict=False)):
        stage, passed = plan.stages[number], bool(info.accepted[0]) or number < len(taken) - 1
        known = [
            name
            for name, level, part in zip(names, stage.levels, plan.others, strict=True)
            if level == len(part.stages)
        ]
        tests.append(
            Test(
                stage.nearest, ratio, ratio - before, float(info.uniform[0, number]), passed, known
            )
        )
    return tests


def with_energies(
    steps: Sequence[Step], chains: Chains, kernel: Metropolis, scorer: Scorer
) -> list[Step]:
    """Add both energies, the ratio and every part's share to steps that propose something new.

    All energies are computed again, since a test may have rejected before some of them were.
    """
    novel = [step for step in steps if not step.repeated]
    if not novel:
        return list(steps)
    energy, masked = kernel.energy, kernel.energy.masked
    rows = [step.before for step in novel] + [step.proposed for step in novel]
    given = replace(
        padded(rows, scorer.model.mask_id, chains.tokens.device),
        source=chains.source.expand(len(rows)),
        reference=chains.reference.expand(len(rows), -1),
    )
    given = with_passes(energy, scorer, given)
    parts = [*([(1.0, masked)] if masked is not None else []), *energy.others]
    values = torch.stack([weight * part(scorer.model, given) for weight, part in parts]).cpu()
    scorer.check()
    old, new = values.sum(0).view(2, -1)
    forward, reverse = (
        torch.tensor([getattr(step, f"log_q_{way}") for step in novel], dtype=torch.float64)
        for way in ("forward", "reverse")
    )
    ratios = log_ratio(old - new, forward, reverse, kernel.target_temperature).tolist()
    falls = (values[:, : len(novel)] - values[:, len(novel) :]).T.tolist()
    names = [
        *([str(masked)] if masked is not None else []),
        *distinct_names(part for _, part in energy.others),
    ]
    complete = {}
    for step, before, after, ratio, own in zip(
        novel, old.tolist(), new.tolist(), ratios, falls, strict=True
    ):
        known = {name for test in step.tests for name in test.experts}
        known |= set() if step.computed_later or masked is None else {names[0]}
        shares = [
            Share(name, weight, fall, name in known)
            for name, (weight, _), fall in zip(names, parts, own, strict=True)
        ]
        complete[step.number] = replace(
            step, energy_old=before, energy_new=after, log_ratio=ratio,
            shares=shares if energy.others else [],
        )  # fmt: skip
    return [complete.get(step.number, step) for step in steps]
