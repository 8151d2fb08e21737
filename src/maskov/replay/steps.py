"""What a replay holds: steps as plain data, from what the kernels themselves tell of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from maskov.energies.base import Energy, distinct_names
from maskov.energies.stages import AcceptanceStages, Stage
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import log_ratio
from maskov.kernels.compose import Mixture
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.types import Chains, Sequences, StepInfo, Tensor


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


def of_step(number: int, before: Sequence[int], info: StepInfo, kernel: Kernel) -> Step:
    """Return a lock-step step of the only chain."""
    proposal = info.proposal
    positions = proposal.masked[0].nonzero().flatten().tolist()
    new, ratios = proposal.tokens[0].tolist(), info.log_ratio[0].tolist()
    plan = kernel.plan if isinstance(kernel, Metropolis) else None
    stages = () if plan is None else plan.stages
    taken = [n for n, ratio in enumerate(ratios[: len(stages)]) if not math.isnan(ratio)]
    accepted = bool(info.accepted[0])
    tests = _tests(stages, len(taken), ratios, info.uniform[0].tolist(), accepted)
    if plan is not None and plan.others:
        tests = [
            replace(test, experts=_experts(plan, stage))
            for test, stage in zip(tests, stages, strict=False)
        ]
    resized, start = proposal.resized, None
    proposed = [new[place] for place in positions]
    if resized is not None and bool(resized.removed[0].any() | (resized.size[0] > 0)):
        start, size = int(resized.start[0]), int(resized.size[0])
        proposed = new[start : start + size]
    return Step(
        number=number,
        positions=positions,
        old=[before[place] for place in positions],
        new=proposed,
        log_q_forward=float(proposal.log_q_forward[0]),
        log_q_reverse=float(proposal.log_q_reverse[0]),
        energy_old=_known(info.energy_old[0]),
        energy_new=_known(info.energy_new[0]),
        log_ratio=tests[-1].log_ratio if tests and len(tests) == len(stages) else None,
        tests=tests,
        accepted=accepted,
        start=start,
    )


def _tests(
    stages: Sequence[Stage],
    count: int,
    ratios: Sequence[float],
    uniforms: Sequence[float],
    accepted: bool,
) -> list[Test]:
    """Return the first tests of a proposal; only the last of them can have rejected it."""
    tests, before = [], 0.0
    for number, stage in enumerate(stages[:count]):
        passed = accepted or number < count - 1
        ratio, uniform = ratios[number], uniforms[number]
        tests.append(Test(stage.nearest, ratio, ratio - before, uniform, passed))
        before = ratio
    return tests


def _experts(plan: AcceptanceStages, stage: Stage) -> list[str]:
    """Return the parts of the energy, masked passes aside, that a stage knows in full."""
    names = distinct_names(part for _, part in plan.energy.others)
    known = zip(names, stage.levels, plan.others, strict=True)
    return [name for name, level, part in known if level == len(part.stages)]


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
    missing = [index for index, step in enumerate(steps) if step.energy_new is None]
    found = _whole(steps, proposed, missing, chains, kernel, scorer) if missing else list(steps)
    return _with_shares(found, before, proposed, chains, kernel.energy, scorer)


def _with_shares(
    steps: Sequence[Step],
    before: Sequence[list[int]],
    proposed: Sequence[list[int]],
    chains: Chains,
    energy: Energy,
    scorer: Scorer,
) -> list[Step]:
    """Add each part's share of the decisions, where the energy has more parts than passes."""
    novel = [index for index, step in enumerate(steps) if not step.repeated]
    if not novel or energy.sums_over_passes:
        return list(steps)
    rows = [one[index] for one in (before, proposed) for index in novel]
    given = _sequences(rows, chains, scorer)
    falls, names = [], distinct_names(part for _, part in energy.others)
    for _, part in energy.others:
        old, new = part(scorer.model, given).view(2, -1)
        falls.append((old - new).tolist())
    found = list(steps)
    for column, index in enumerate(novel):
        step = found[index]
        known = {name for test in step.tests for name in test.experts}
        shares = [
            Share(name, weight, weight * fall[column], name in known)
            for name, (weight, _), fall in zip(names, energy.others, falls, strict=True)
        ]
        if (
            energy.masked is not None
            and step.energy_old is not None
            and step.energy_new is not None
        ):
            # What the experts leave of the fall.
            fall = step.energy_old - step.energy_new - sum(share.fall for share in shares)
            tested = bool(step.tests) and not step.computed_later
            shares.insert(0, Share(str(energy.masked), 1.0, fall, tested))
        found[index] = replace(step, shares=shares)
    return found


def _sequences(rows: Sequence[list[int]], chains: Chains, scorer: Scorer) -> Sequences:
    """Return sequences of the only chain."""
    width, device = max(map(len, rows)), chains.tokens.device
    padded = [row + [scorer.model.mask_id] * (width - len(row)) for row in rows]
    return Sequences(
        torch.tensor(padded, device=device),
        torch.tensor([len(row) for row in rows], device=device),
        source=chains.source.expand(len(rows)),
        reference=chains.reference.expand(len(rows), -1),
    )


def _whole(
    steps: Sequence[Step],
    proposed: Sequence[list[int]],
    missing: Sequence[int],
    chains: Chains,
    kernel: Metropolis,
    scorer: Scorer,
) -> list[Step]:
    """Add the missing energies of proposals, and the ratios that follow from them."""
    found = list(steps)
    given = _sequences([proposed[index] for index in missing], chains, scorer)
    if kernel.energy.needs_passes:
        sites = scorer.cache(given, kernel.energy.needs_normaliser, groups=kernel.energy.groups)
        given = replace(given, pass_cache=sites)
    energies = kernel.energy(scorer.model, given)
    scorer.check()
    for index, energy in zip(missing, energies.tolist(), strict=True):
        step = found[index]
        assert step.energy_old is not None
        numbers = (step.energy_old - energy, step.log_q_forward, step.log_q_reverse)
        parts = [torch.tensor([number], dtype=torch.float64) for number in numbers]
        beta = chains.beta.cpu() / kernel.target_temperature
        ratio = float(log_ratio(parts[0], parts[1], parts[2], beta))
        found[index] = replace(step, energy_new=energy, log_ratio=ratio, computed_later=True)
    return found


def _known(value: Tensor) -> float | None:
    number = float(value)
    return None if number != number else number
