"""Transition matrices of models whose label smoothing is removed: energies and proposals agree."""

import math

import pytest
import torch

from maskov import DelayedAcceptance, MaskedConditional, Metropolis, Norm, Raw
from maskov.exact import all_states, distribution
from maskov.models.base import Queries
from maskov.moves import Site
from small import site_matrices, tiny_bert
from tiny_translation import conditional, plain_logits

TOLERANCE = 1e-10
SHARE, FLOOR, LENGTH = 0.3, 0.01, 3
SOURCE = "white green green"
SMOOTHED = {"transformer": tiny_bert(), "translation": conditional().given([SOURCE])}
MODELS = {name: model.without_smoothing(SHARE) for name, model in SMOOTHED.items()}
STATES = {name: all_states(model, LENGTH) for name, model in MODELS.items()}
ENERGIES = {"raw": Raw(), "norm": Norm()}


def _logits(name: str, ids: list[int], place: int) -> list[float]:
    """Return the scores at one masked place, as the network gives them."""
    model = SMOOTHED[name]
    if name == "translation":
        return plain_logits(model, SOURCE, ids, [place])[place].tolist()
    masked = torch.arange(LENGTH)[None] == place
    queries = Queries(torch.tensor([ids]), torch.tensor([LENGTH]), masked)
    return model.logits(model.hidden(queries))[0].tolist()


def _plain(name: str, ids: list[int]) -> tuple[float, float]:
    """Return E_raw and E_norm of a sequence: each probability less ε/V, or a hundredth of it."""
    raw = norm = 0.0
    for place, token in enumerate(ids):
        scores = _logits(name, ids, place)
        total = sum(map(math.exp, scores))
        tail = SHARE / len(scores)
        left = [max(math.exp(one) / total - tail, FLOOR * math.exp(one) / total) for one in scores]
        raw -= math.log(left[token]) + math.log(total)
        norm -= math.log(left[token] / sum(left))
    return raw, norm


@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("name", MODELS)
def test_the_target_is_that_of_the_plain_formula_and_another_than_before(name, energy):
    states = STATES[name]
    found = distribution(MODELS[name], ENERGIES[energy], states)
    values = [_plain(name, ids)[energy == "norm"] for ids in states.tolist()]
    plain = (-torch.tensor(values, dtype=torch.float64)).softmax(0)
    assert (found - plain).abs().max() < TOLERANCE
    assert found.min() > 0
    before = distribution(SMOOTHED[name], ENERGIES[energy], states)
    assert (found - before).abs().sum() / 2 > 0.05


@pytest.mark.parametrize("flowing", [False, True], ids=["step", "flow"])
@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("name", MODELS)
def test_single_sites_leave_the_target_invariant(name, energy, flowing):
    model, states = MODELS[name], STATES[name]
    for temperature, proposal in ((1.0, MaskedConditional(0.8)), (0.6, MaskedConditional())):
        for nearest in (0, 1) if flowing else (0,):
            delayed = DelayedAcceptance(nearest)
            kernel = Metropolis(ENERGIES[energy], Site(proposal), temperature, delayed)
            target = distribution(model, ENERGIES[energy], states, temperature)
            assert len([*site_matrices(kernel, model, states, target, flowing)]) == LENGTH
