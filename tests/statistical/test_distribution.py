"""Whole runs against exact distributions, by χ².

Each test fails a correct sampler with probability ALPHA; the suite has fewer than ten of them, so
it fails by chance less than once in 10^5 runs. Power: a sampler that had the law of degenerate
Gibbs would be let through with probability below 10^-9, which is computed here from the
non-central χ². Every chain gives one sample, so samples are independent, and the exact matrices
say that the epochs are enough to forget the start. The seed is the first one tried.
"""

import numpy as np
import pytest
import torch
from scipy import stats

from maskov import Gibbs, MaskedConditional, Metropolis, Norm, Raw, Schedule, Sweep, sample
from maskov.exact import all_states, distribution, stationary, sweep_matrix
from maskov.models.scorer import Scorer
from maskov.moves import Site
from small import random_table, transition_matrix

ALPHA = 1e-6
CHAINS = 1500
EPOCHS = 150


def p_value(samples, states: torch.Tensor, target: torch.Tensor) -> float:
    """Return the χ² p-value; an outcome of probability zero has p = 0."""
    index = {tuple(state): i for i, state in enumerate(states.tolist())}
    counts = np.zeros(len(states))
    for one in samples:
        if tuple(one.ids) not in index:
            return 0.0
        counts[index[tuple(one.ids)]] += 1
    expected = target.numpy() * counts.sum()
    if (counts[expected == 0] > 0).any():
        return 0.0
    # Rare outcomes are pooled, as the χ² approximation asks.
    rare = expected < 5
    pooled = [np.append(x[~rare], x[rare].sum()) for x in (counts, expected)]
    keep = pooled[1] > 0
    return float(stats.chisquare(pooled[0][keep], pooled[1][keep]).pvalue)


def distance_left(kernel, model, states: torch.Tensor, target: torch.Tensor, steps: int) -> float:
    """Return how far, at most, a chain can still be from its target after so many steps.

    A step at a random single position stands in for the kernel's own order and block.
    """
    engine = Scorer(model)
    single = [transition_matrix(kernel, engine, states, row) for row in torch.eye(3) > 0]
    power = torch.linalg.matrix_power(sum(single) / 3, steps)
    return float((power - target).abs().sum(1).max() / 2)


@pytest.mark.parametrize(
    ("energy", "proposal", "positions", "temperature", "epochs"),
    [
        (Raw(), MaskedConditional(), Sweep(), 1.0, 50),
        (Norm(), MaskedConditional(), Sweep("left-to-right"), 1.0, 50),
        (Raw(), MaskedConditional(top_p=0.8, epsilon=0.1), Sweep("random", 2), 1.5, EPOCHS),
        (Norm(), MaskedConditional(temperature=1.5), Sweep("random", 3), 0.7, EPOCHS),
    ],
)
def test_metropolis_samples_its_target(energy, proposal, positions, temperature, epochs):
    model = random_table(scale=0.8)
    kernel = Metropolis(energy, Site(proposal, positions), target_temperature=temperature)
    states = all_states(model, 3)
    target = distribution(model, energy, states, temperature)
    # Three positions a sweep; blocks of more than one are counted as two.
    steps = epochs * (3 if positions.block == 1 else 2)
    assert distance_left(kernel, model, states, target, steps) < 1e-4
    run = sample(model, kernel, Schedule(epochs=epochs), chains=CHAINS, length=3, seed=1)
    assert p_value(run.samples, states, target) > ALPHA


def test_degenerate_gibbs_is_told_from_both_targets():
    model = random_table(scale=0.8)
    epochs = 30
    run = sample(model, Gibbs(), Schedule(epochs=epochs), chains=CHAINS, length=3, seed=1)
    states = all_states(model, 3)
    sweeps = [sweep_matrix(Gibbs(), Scorer(model), states, seed) for seed in range(60)]
    whole = sum(sweeps) / len(sweeps)
    law = stationary(whole)
    assert (torch.linalg.matrix_power(whole, epochs) - law).abs().sum(1).max() / 2 < 1e-4
    for energy in (Raw(), Norm()):
        target = distribution(model, energy, states)
        distance = float(((law - target) ** 2 / target).sum())
        critical = stats.chi2.isf(ALPHA, len(states) - 1)
        assert stats.ncx2.cdf(critical, len(states) - 1, CHAINS * distance) < 1e-9
        assert p_value(run.samples, states, target) < ALPHA
