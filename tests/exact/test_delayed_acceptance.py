"""Delayed acceptance against its claimed targets, by whole transition matrices of the real code."""

import itertools

import pytest
import torch

from maskov import DelayedAcceptance, MaskedConditional, Metropolis, Norm, Raw, counterexample
from maskov.exact import all_states, balance_error, distribution
from maskov.models.scorer import Scorer
from maskov.moves import Site
from small import random_table, site_matrices, tiny_bert, transition_matrix

TOLERANCE = 1e-10
MODELS = {
    "counterexample": counterexample(),
    "table": random_table(length=4, size=3, seed=5),
    "table with a forbidden token": random_table(size=4, seed=1, forbidden=("b",)),
    "transformer": tiny_bert(),
}
TESTS = {
    "at once": DelayedAcceptance(0),
    "nearest 1": DelayedAcceptance(1),
    "nearest 2": DelayedAcceptance(2),
    "more than there are": DelayedAcceptance(9),
    "nearest 1, then 2": DelayedAcceptance((1, 2)),
}
PROPOSALS = {
    "plain": MaskedConditional(),
    "hot": MaskedConditional(temperature=2.0),
    "nucleus": MaskedConditional(top_p=0.8),
    "nucleus, defended": MaskedConditional(top_p=0.6, epsilon=0.05),
}
ENERGIES = {"raw": Raw(), "norm": Norm(), "sum": 0.3 * Raw() + 1.2 * Norm()}


@pytest.mark.parametrize(
    ("name", "energy", "tests"), list(itertools.product(MODELS, ENERGIES, TESTS))
)
def test_every_way_of_testing_is_in_detailed_balance(name, energy, tests):
    model = MODELS[name]
    states = all_states(model, min(4 if name == "table" else 3, model.max_length))
    settings = list(zip(PROPOSALS.values(), (1.0, 0.4, 2.5, 1.0), strict=True))
    # Two of the four, in turn: every proposal meets every way of testing and every model.
    first = (list(TESTS).index(tests) + list(ENERGIES).index(energy)) % 2
    for proposal, temperature in settings[first::2]:
        kernel = Metropolis(ENERGIES[energy], Site(proposal), temperature, TESTS[tests])
        target = distribution(model, ENERGIES[energy], states, temperature)
        matrices = site_matrices(kernel, model, states, target, asynchronous=True)
        assert len([*matrices]) == states.shape[1]


@pytest.mark.parametrize("energy", ENERGIES)
def test_one_test_is_the_plain_algorithm_and_two_accept_less_often(energy):
    model = MODELS["table"]
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

    model = MODELS["table"]
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
