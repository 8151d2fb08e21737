"""Delayed acceptance: how it differs from one test, and a wrong version.

That it leaves its target invariant is tested in `test_parts.py`, with every energy.
"""

import pytest
import torch

from maskov import DelayedAcceptance, Metropolis, Norm, Raw
from maskov.exact import all_states, balance_error, distribution
from maskov.models.scorer import Scorer
from small import random_table, transition_matrix

TOLERANCE = 1e-10
TABLE = random_table(length=4, size=3, seed=5)
TESTS = {
    "at once": DelayedAcceptance(0),
    "nearest 1": DelayedAcceptance(1),
    "nearest 2": DelayedAcceptance(2),
    "more than there are": DelayedAcceptance(9),
    "nearest 1, then 2": DelayedAcceptance((1, 2)),
}
ENERGIES = {"raw": Raw(), "norm": Norm(), "sum": 0.3 * Raw() + 1.2 * Norm()}


@pytest.mark.parametrize("energy", ENERGIES)
def test_one_test_is_the_plain_algorithm_and_two_accept_less_often(energy):
    model = TABLE
    engine, states = Scorer(model), all_states(model, 4)
    masked = torch.arange(4) == 1
    once = Metropolis(ENERGIES[energy], delayed=DelayedAcceptance(0))
    plain = transition_matrix(once, engine, states, masked)
    for tests, delayed in TESTS.items():
        kernel = Metropolis(ENERGIES[energy], delayed=delayed)
        matrix = transition_matrix(kernel, engine, states, masked, asynchronous=True)
        moves = ~torch.eye(len(states), dtype=torch.bool)
        assert (matrix[moves] <= plain[moves] + TOLERANCE).all()  # Peskun's order
        same = bool((matrix - plain).abs().max() < TOLERANCE)
        assert same == (tests in ("at once", "more than there are"))


def test_a_wrong_second_test_is_noticed(monkeypatch):
    """Testing the whole ratio again, as if nothing had been tested, breaks the balance."""
    from maskov.execution import site_rounds as module

    model = TABLE
    states = all_states(model, 4)
    kernel = Metropolis(Raw(), delayed=DelayedAcceptance(1))
    target = distribution(model, Raw(), states)
    original = module.SiteRounds._decide

    def forgetful(self):
        self.buffers.slot_ratio.zero_()
        original(self)

    monkeypatch.setattr(module.SiteRounds, "_decide", forgetful)
    places = torch.eye(4) > 0
    matrices = (transition_matrix(kernel, Scorer(model), states, one, True) for one in places)
    assert max(balance_error(matrix, target) for matrix in matrices) > 1e-4
