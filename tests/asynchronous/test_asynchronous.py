"""Chains that go at their own pace do what chains in lock-step do, decision by decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engines import sample
from maskov import (
    DelayedAcceptance,
    LinearSchedule,
    Metropolis,
    Norm,
    Raw,
    Schedule,
)
from maskov.energies import TextEnergy
from maskov.energies.stages import AcceptanceStages, nearness
from maskov.execution.buffers import SiteBuffers
from maskov.execution.site_rounds import SiteRounds
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.types import Sequences
from small import random_state, tiny_bert

MODEL = tiny_bert("red green blue white black")
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")


def test_the_kernel_changes_from_epoch_to_epoch():
    """Forced epochs, then blocks in lock-step, then single sites in flight."""
    schedule = Schedule(epochs=9, force_accept=2, block=LinearSchedule(3.0, rate=1.0, floor=1.0))
    settings = {"schedule": schedule, "chains": 6, "length": 7, "seed": 3}
    kernel = Metropolis(Raw(), delayed=DelayedAcceptance(0))
    plain = sample(MODEL, kernel, lock_step=True, **settings)
    flown = sample(MODEL, kernel, **settings)
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    assert np.isnan(flown.traces["energy_target"][:2]).all()


@pytest.mark.parametrize("nearest", [1, 2, 5])
@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
def test_early_tests_decide_alike_in_lock_step(nearest, energy):
    kernel = Metropolis(energy, delayed=DelayedAcceptance(nearest))
    settings = {"schedule": Schedule(epochs=4), "chains": 10, "length": (3, 9), "seed": 5}
    plain = sample(MODEL, kernel, lock_step=True, **settings)
    flown = sample(MODEL, kernel, **settings)
    once = sample(MODEL, Metropolis(energy, delayed=DelayedAcceptance(0)), **settings)
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    for name in (*COUNTS, "tokens", "rejected"):
        assert (plain.traces[name] == flown.traces[name]).all(), name
    assert flown.traces["passes"].sum() < once.traces["passes"].sum()


@dataclass(frozen=True)
class CountsRed:
    """An energy of texts: so much for each red."""

    price: float = 0.5

    def __call__(self, texts):
        return [self.price * text.split().count("red") for text in texts]


def test_a_proposal_that_an_expert_rejects_costs_no_masked_pass():
    target = 0.1 * Norm() + 20 * TextEnergy(CountsRed())
    kernel = Metropolis(target, delayed=DelayedAcceptance(2))
    texts = ["white blue white blue green"]
    run = sample(MODEL, kernel, Schedule(epochs=20), chains=10, texts=texts, seed=5)
    novel = run.traces["proposed_novel"].sum()
    assert run.traces["passes"].sum() < novel * 4
    # Every novel proposal asks the expert, once.
    assert run.traces["expert_calls"].sum() == novel


def _flight(kernel, delayed, slots=1, count=12, length=9):
    engine, plan = Scorer(MODEL), AcceptanceStages(kernel.energy, delayed)
    state = kernel.init(random_state(MODEL, count, length), engine)
    buffers = SiteBuffers.of(state, len(plan.stages), 0, slots, ring=4)
    temperatures = torch.ones(4, dtype=torch.float64)
    flow = SiteRounds(kernel, plan, engine, CounterRng(7), buffers, temperatures)
    flow.limit.fill_(4)
    while flow.slowest() < 4:
        flow.advance()
    return flow


def test_what_is_kept_is_what_the_model_says_of_the_tokens():
    """After many moves the cached passes are still those of the current sequences."""
    kernel = Metropolis(Norm())
    flow = _flight(kernel, DelayedAcceptance(2), slots=3)
    b = flow.buffers
    fresh = Scorer(MODEL).cache(Sequences(b.tokens, b.lengths))
    assert b.ring_counts[..., COUNTS.index("novel")].sum() > 20
    for mine, right in ((b.hidden, fresh.hidden), (b.logit, fresh.logit)):
        assert (mine - right).abs().max() < 1e-10


def test_the_nearest_positions():
    place, lengths = torch.tensor([0, 2, 4, 1]), torch.tensor([5, 5, 5, 2])
    nearer = nearness(place, lengths, 6)
    chosen = (nearer < 3).int().tolist()
    assert chosen[0] == [0, 1, 1, 1, 0, 0]
    assert chosen[1] == [1, 1, 0, 1, 0, 0]  # in a tie the left one
    assert chosen[2] == [0, 1, 1, 1, 0, 0]
    assert chosen[3] == [1, 0, 0, 0, 0, 0]
    assert (nearer < 6).sum(1).tolist() == [4, 4, 4, 1]
    for count in range(1, 5):
        sizes = (nearer < count).sum(1)
        assert sizes.tolist() == [min(count, n - 1) for n in (5, 5, 5, 2)]
