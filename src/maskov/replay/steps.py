"""Steps as plain data, from what the kernels themselves tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from maskov.energies.stages import Stage
from maskov.execution.async_tests import UNTESTED, Settled
from maskov.execution.scorer import Engine
from maskov.kernels import Metropolis
from maskov.replay.record import Step, Test
from maskov.types import ChainState, Sequences, StepInfo, Tensor


def of_step(number: int, before: Sequence[int], info: StepInfo) -> Step:
    """Return a step of the kernel's own, of its only chain."""
    proposal = info.proposal
    positions = proposal.masked[0].nonzero().flatten().tolist()
    new = proposal.tokens[0].tolist()
    old_energy = _known(info.energy_old[0])
    ratio, uniform = float(info.log_ratio[0]), float(info.uniform[0])
    accepted = bool(info.accepted[0])
    # A kernel without an energy accepts everything: there is no test to speak of.
    decided = old_energy is not None and bool(info.proposed_novel[0])
    return Step(
        number=number,
        positions=positions,
        old=[before[place] for place in positions],
        new=[new[place] for place in positions],
        log_q_forward=float(proposal.log_q_forward[0]),
        log_q_reverse=float(proposal.log_q_reverse[0]),
        energy_old=old_energy,
        energy_new=_known(info.energy_new[0]),
        log_ratio=ratio if decided else None,
        tests=[Test(None, False, ratio, ratio, uniform, accepted)] if decided else [],
        accepted=accepted,
    )


def of_flight(heard: Sequence[Settled], first: int, stages: Sequence[Stage]) -> list[Step]:
    """Return the steps of a lone chain in flight, in order; `first` is its step at the start."""
    steps = [_settled(part, row, first, stages) for part in heard for row in range(len(part.chain))]
    return sorted(steps, key=lambda step: step.number)


def _settled(told: Settled, row: int, first: int, stages: Sequence[Stage]) -> Step:
    last, accepted = int(told.stage[row]), bool(told.accepted[row])
    tests, before = [], 0.0
    for number, stage in enumerate(stages[: last + 1]):
        ratio = float(told.log_ratio[row, number])
        passed = accepted or number < last
        uniform = float(told.uniform[row, number])
        tests.append(Test(stage.nearest, stage.low, ratio, ratio - before, uniform, passed))
        before = ratio
    complete = last == len(stages) - 1
    return Step(
        number=int(told.step[row]) - first,
        positions=[int(told.place[row])],
        old=[int(told.old[row])],
        new=[int(told.new[row])],
        log_q_forward=float(told.log_q_forward[row]),
        log_q_reverse=float(told.log_q_reverse[row]),
        energy_old=_known(told.energy_old[row]),
        energy_new=_known(told.energy_new[row]),
        log_ratio=tests[-1].log_ratio if last != UNTESTED and complete else None,
        tests=tests,
        accepted=accepted,
    )


def with_energies(
    steps: Sequence[Step], state: ChainState, kernel: Metropolis, engine: Engine
) -> list[Step]:
    """Add the energies of proposals that an early test turned down, and their whole ratios."""
    tokens, rows, missing = state.tokens[0].clone(), [], []
    for index, step in enumerate(steps):
        places = torch.tensor(step.positions, device=tokens.device)
        proposed = tokens.index_copy(0, places, torch.tensor(step.new, device=tokens.device))
        if step.energy_new is None:
            rows.append(proposed)
            missing.append(index)
        if step.accepted:
            tokens = proposed
    if not missing:
        return list(steps)
    found = list(steps)
    lengths = state.lengths.expand(len(rows))
    given = Sequences(torch.stack(rows), lengths, source=state.source.expand(len(rows)))
    if kernel.energy.needs_sites:
        given = replace(given, sites=engine.sites(given, kernel.energy.needs_normaliser))
    energies = kernel.energy(engine.model, given)
    engine.check()
    for index, energy in zip(missing, energies.tolist(), strict=True):
        step = found[index]
        assert step.energy_old is not None
        fall = (step.energy_old - energy) / kernel.target_temperature
        ratio = fall + step.log_q_reverse - step.log_q_forward
        found[index] = replace(step, energy_new=energy, log_ratio=ratio, computed_later=True)
    return found


def _known(value: Tensor) -> float | None:
    number = float(value)
    return None if number != number else number
