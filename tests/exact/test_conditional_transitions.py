"""Transition matrices of chains that translate: p(x | source) is what they leave invariant."""

import itertools

import pytest
import torch

from maskov import DelayedAcceptance, MaskedConditional, Metropolis, Norm, Raw, Sweep
from maskov.exact import (
    all_states,
    balance_error,
    distribution,
    invariance_error,
    sweep_matrix,
)
from maskov.models.scorer import Scorer
from maskov.moves import Site
from small import site_matrices, transition_matrix
from tiny_translation import conditional, plain_energies

TOLERANCE = 1e-10
LENGTH = 3
SOURCES = ("red blue", "white green green")
MODEL = conditional()
ENDED = conditional(target_end=True)
# Each reads one source alone, which is number 0 to it.
GIVEN = {source: MODEL.given([source]) for source in SOURCES} | {
    "red blue, with an end": ENDED.given(["red blue"])
}
ENERGIES = {"raw": Raw(), "norm": Norm()}
STATES = all_states(MODEL, LENGTH)


@pytest.mark.parametrize("energy", ENERGIES)
def test_the_target_is_another_one_for_each_source(energy):
    """Otherwise nothing here would notice a chain that reads the wrong source, or none."""
    first, second, ended = (
        distribution(model, ENERGIES[energy], STATES) for model in GIVEN.values()
    )
    for one, other in ((first, second), (first, ended)):
        assert (one - other).abs().sum() / 2 > 0.2
    # And it is the one that a plain account gives, place by place.
    values = [plain_energies(MODEL, SOURCES[0], ids)[energy == "norm"] for ids in STATES.tolist()]
    plain = (-torch.tensor(values, dtype=torch.float64)).softmax(0)
    assert (plain - first).abs().max() < TOLERANCE


@pytest.mark.parametrize("flowing", [False, True], ids=["step", "flow"])
@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("source", GIVEN)
def test_single_sites_leave_the_target_invariant(source, energy, flowing):
    model = GIVEN[source]
    for temperature, proposal in ((1.0, MaskedConditional(0.8)), (0.6, MaskedConditional())):
        kernel = Metropolis(ENERGIES[energy], Site(proposal), temperature, DelayedAcceptance(0))
        target = distribution(model, ENERGIES[energy], STATES, temperature)
        assert len([*site_matrices(kernel, model, STATES, target, flowing)]) == LENGTH


def test_the_target_of_another_source_is_not_left_invariant():
    """What the tests above can see: a chain that reads another source than it should."""
    engine = Scorer(GIVEN[SOURCES[0]])
    other = distribution(GIVEN[SOURCES[1]], Raw(), STATES)
    middle = torch.arange(LENGTH) == 1
    for flowing in (False, True):
        matrix = transition_matrix(Metropolis(Raw()), engine, STATES, middle, flowing)
        assert invariance_error(matrix, other) > 1e-3


@pytest.mark.parametrize(("source", "energy"), [*zip(SOURCES, ENERGIES, strict=True)])
def test_blocks_leave_the_target_invariant(source, energy):
    model = GIVEN[source]
    kernel = Metropolis(ENERGIES[energy], Site(MaskedConditional(0.8), Sweep(block=2)))
    target = distribution(model, ENERGIES[energy], STATES)
    for places in itertools.combinations(range(LENGTH), 2):
        masked = torch.tensor([place in places for place in range(LENGTH)])
        matrix = transition_matrix(kernel, Scorer(model), STATES, masked)
        assert balance_error(matrix, target) < TOLERANCE
    assert invariance_error(sweep_matrix(kernel, Scorer(model), STATES), target) < TOLERANCE
