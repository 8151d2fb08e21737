"""What an observer of chains in flight hears is what was decided, and why."""

from __future__ import annotations

import pytest
import torch

from maskov import DelayedAcceptance, MaskedConditional, Metropolis, Norm, Raw, Sweep
from maskov.energies.stages import AcceptanceStages
from maskov.execution.async_tests import UNTESTED
from maskov.execution.asynchronous import AsyncSampler
from maskov.execution.buffers import Buffers
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from small import epoch, random_state, tiny_bert

MODEL = tiny_bert("red green blue white black", dtype=torch.float32)
TEMPERATURE = 0.7
COUNT, LENGTH = 6, 8


def heard(delayed: DelayedAcceptance, proposal: MaskedConditional, slots: int = 1):
    """Fly one epoch and return the steps by (chain, step) as an observer hears of them."""
    kernel = Metropolis(
        Norm(), Site(proposal, Sweep()), target_temperature=TEMPERATURE, delayed=delayed
    )
    engine = Scorer(MODEL)
    state = kernel.init(random_state(MODEL, COUNT, LENGTH), engine)
    plan = AcceptanceStages(kernel.energy, delayed)
    buffers = Buffers.of(state, plan, 0, slots, ring=1)
    told = []
    temperatures = torch.tensor([TEMPERATURE], dtype=torch.float64)
    flow = AsyncSampler(
        kernel, plan, engine, CounterRng(3), buffers, temperatures, observer=told.append
    )
    flow.limit.fill_(1)
    while flow.slowest() < 1:
        flow.advance()
    steps = {}
    for one in told:
        for row in range(len(one.chain)):
            key = (int(one.chain[row]), int(one.step[row]))
            assert key not in steps
            steps[key] = {name: value[row] for name, value in vars(one).items()}
    assert len(steps) == COUNT * LENGTH
    return kernel, steps


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(
    "delayed",
    [DelayedAcceptance(0), DelayedAcceptance(2), DelayedAcceptance((1, 3))],
    ids=str,
)
def test_the_arithmetic_of_every_test_adds_up(delayed, slots):
    _, steps = heard(delayed, MaskedConditional(top_k=3), slots)
    stages = len(AcceptanceStages(Norm(), delayed).stages)
    seen = set()
    for one in steps.values():
        seen.add(last := int(one["stage"]))
        if last == UNTESTED:
            assert one["old"] == one["new"]
            assert one["accepted"]
            continue
        ratios, draws = one["log_ratio"], one["uniform"]
        before = 0.0
        for stage in range(last + 1):
            passed = bool(draws[stage].log() < ratios[stage] - before)
            assert passed == (bool(one["accepted"]) or stage < last)
            before = float(ratios[stage])
        assert ratios[last + 1 :].isnan().all()
        if last == stages - 1 and one["log_q_reverse"] > -torch.inf:
            fall = (one["energy_old"] - one["energy_new"]) / TEMPERATURE
            expected = fall + one["log_q_reverse"] - one["log_q_forward"]
            assert float(ratios[last]) == pytest.approx(float(expected), abs=1e-9)
        else:
            assert one["energy_new"].isnan()
    assert seen >= {UNTESTED, 0, stages - 1}


def test_flying_chains_tell_what_the_kernel_itself_tells():
    kernel, steps = heard(DelayedAcceptance(0), MaskedConditional())
    engine = Scorer(MODEL)
    state = kernel.init(random_state(MODEL, COUNT, LENGTH), engine)
    decided = 0
    for before, _, info in epoch(kernel, state, engine, CounterRng(3)):
        for row in range(COUNT):
            one = steps[int(before.chain[row]), int(before.step[row])]
            place = int(one["place"])
            assert info.proposal.masked[row].nonzero().flatten().tolist() == [place]
            assert info.proposal.tokens[row, place] == one["new"]
            assert before.tokens[row, place] == one["old"]
            assert info.accepted[row] == one["accepted"]
            pairs = [
                (info.energy_old, one["energy_old"]),
                (info.energy_new, one["energy_new"]),
                (info.proposal.log_q_forward, one["log_q_forward"]),
                (info.proposal.log_q_reverse, one["log_q_reverse"]),
            ]
            if int(one["stage"]) != UNTESTED:
                decided += 1
                assert info.uniform[row] == one["uniform"][0]
                pairs.append((info.log_ratio[:, 0], one["log_ratio"][0]))
            for ours, theirs in pairs:
                assert float(ours[row]) == pytest.approx(float(theirs), rel=1e-5, abs=1e-4)
    assert decided > COUNT


def test_a_target_of_another_energy_is_told_in_its_own():
    kernel = Metropolis(Raw() + 0.5 * Norm())
    engine = Scorer(MODEL)
    state = kernel.init(random_state(MODEL, 2, 4), engine)
    told = []
    plan = AcceptanceStages(kernel.energy, DelayedAcceptance(0))
    buffers = Buffers.of(state, plan, 0, 1, ring=1)
    one = torch.ones(1, dtype=torch.float64)
    flow = AsyncSampler(kernel, plan, engine, CounterRng(0), buffers, one, observer=told.append)
    flow.limit.fill_(1)
    while flow.slowest() < 1:
        flow.advance()
    first = [float(part.energy_old[0]) for part in told if len(part.chain) and part.chain[0] == 0]
    assert first[0] == pytest.approx(float(state.energy[0]), abs=1e-4)
