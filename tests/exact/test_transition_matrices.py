"""Whole transition matrices, built from the real kernel code, against their claimed targets."""

import pytest
import torch

from maskov import Gibbs, MaskedConditional, Metropolis, Norm, Raw, Sweep, counterexample
from maskov.exact import (
    all_states,
    balance_error,
    distribution,
    fresh_state,
    invariance_error,
    joined,
    stationary,
    step_matrix,
    sweep_matrix,
)
from maskov.models.scorer import Scorer
from maskov.moves import Site
from small import random_table, tiny_bert

TOLERANCE = 1e-10

MODELS = {
    "counterexample": counterexample(),
    "table": random_table(),
    # A token that scores well but may not be sampled: the target is over the others alone.
    "table with a forbidden token": random_table(size=4, seed=1, forbidden=("b",)),
    "transformer": tiny_bert(),
}
PROPOSALS = {
    "plain": MaskedConditional(),
    "cold": MaskedConditional(temperature=0.5),
    "hot": MaskedConditional(temperature=2.0),
    "top-k": MaskedConditional(top_k=2),
    "nucleus": MaskedConditional(top_p=0.8),
    "nucleus, defended": MaskedConditional(top_p=0.6, epsilon=0.05),
    "all at once": MaskedConditional(temperature=1.3, top_k=2, top_p=0.9, epsilon=0.02),
}
ENERGIES = {"raw": Raw(), "norm": Norm(), "sum": 0.3 * Raw() + 1.2 * Norm()}
TEMPERATURES = (0.4, 1.0, 2.5)


def _length(model) -> int:
    return min(3, model.max_length)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("name", MODELS)
def test_metropolis_is_in_detailed_balance(name, energy, proposal):
    # One of three temperatures, in turn: every proposal and every energy meets each of them.
    turn = list(MODELS).index(name) + list(ENERGIES).index(energy) + list(PROPOSALS).index(proposal)
    temperature = TEMPERATURES[turn % 3]
    model = MODELS[name]
    states = all_states(model, _length(model))
    move = Site(PROPOSALS[proposal], Sweep("left-to-right", states.shape[1]))
    # Every set of places that a step may mask, side by side.
    masks = torch.cartesian_prod(*[torch.tensor([False, True])] * states.shape[1])[1:]
    start = joined([fresh_state(states, masked.expand(states.shape)) for masked in masks])
    target = distribution(model, ENERGIES[energy], states, temperature).repeat(len(masks))
    kernel = Metropolis(ENERGIES[energy], move, target_temperature=temperature)
    matrix = step_matrix(kernel, Scorer(model), start)
    assert (matrix.sum(1) - 1).abs().max() < TOLERANCE
    assert matrix.min() > -TOLERANCE
    assert balance_error(matrix, target) < TOLERANCE


@pytest.mark.parametrize("order", ["random", "left-to-right"])
@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("name", ["table", "table with a forbidden token", "transformer"])
def test_a_whole_sweep_of_metropolis_leaves_its_target_invariant(name, block, order):
    model, engine = MODELS[name], Scorer(MODELS[name])
    states = all_states(model, _length(model))
    for energy, temperature in ((Raw(), 0.5), (Norm(), 1.0)):
        target = distribution(model, energy, states, temperature)
        kernel = Metropolis(
            energy,
            Site(MaskedConditional(top_p=0.9, epsilon=0.01), Sweep(order, block)),
            target_temperature=temperature,
        )
        assert kernel.leaves_invariant
        for seed in range(2):
            assert invariance_error(sweep_matrix(kernel, engine, states, seed), target) < TOLERANCE


@pytest.mark.parametrize("name", ["table", "transformer"])
@pytest.mark.parametrize("block", [1, 2])
def test_degenerate_gibbs_leaves_neither_target_invariant_and_says_so(name, block):
    model, engine = MODELS[name], Scorer(MODELS[name])
    states = all_states(model, _length(model))
    kernel = Gibbs(Site(positions=Sweep("random", block)))
    assert not kernel.leaves_invariant
    matrix = sweep_matrix(kernel, engine, states)
    for energy in (Raw(), Norm()):
        assert invariance_error(matrix, distribution(model, energy, states)) > 1e-3


def test_the_counterexample_in_numbers():
    """Odds ratios 9801 and 1 fit no joint; Gibbs then goes wherever its order leads it."""
    model = MODELS["counterexample"]
    engine, states = Scorer(model), all_states(model, 2)
    odds = model.scores[:, 0, 0] + model.scores[:, 1, 1]
    odds = (odds - model.scores[:, 0, 1] - model.scores[:, 1, 0]).exp()
    assert odds.tolist() == pytest.approx([9801, 1])
    target = distribution(model, Norm(), states)
    assert target.tolist() == pytest.approx([0.495, 0.005, 0.005, 0.495])

    forward = sweep_matrix(Gibbs(Site(positions=Sweep("left-to-right"))), engine, states)
    assert stationary(forward).tolist() == pytest.approx([0.25] * 4)
    error = invariance_error(forward, target)
    exact = sweep_matrix(Metropolis(Norm(), Site(positions=Sweep("left-to-right"))), engine, states)
    assert error == pytest.approx(0.245)
    assert invariance_error(exact, target) < TOLERANCE


def test_a_truncated_proposal_can_be_stuck_and_epsilon_frees_it():
    """Detailed balance holds either way; reaching every state does not."""
    model = MODELS["table"]
    engine, states = Scorer(model), all_states(model, 3)
    stuck = sweep_matrix(Metropolis(Raw(), Site(MaskedConditional(top_k=1))), engine, states)
    free = sweep_matrix(
        Metropolis(Raw(), Site(MaskedConditional(top_k=1, epsilon=0.1))), engine, states
    )
    target = distribution(model, Raw(), states)
    assert invariance_error(stuck, target) < TOLERANCE
    assert (torch.linalg.matrix_power(stuck, 200) == 0).any()
    assert (torch.linalg.matrix_power(free, 200) > 0).all()
    assert not MaskedConditional(top_k=1).reaches_everything
    assert MaskedConditional(top_k=1, epsilon=0.1).reaches_everything
