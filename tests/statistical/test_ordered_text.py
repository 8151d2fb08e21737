"""Chains and populations of an ordered energy against independent draws, with the shipped model."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

import maskov
from maskov.diagnostics.populations import PopulationSummary

TARGET = "ordered(left-to-right)"
COMMON = {"length": 6, "progress": False, "workers": 0}


@pytest.fixture(scope="module")
def model():
    return maskov.load("wiki-any", device="cpu")


@pytest.fixture(scope="module")
def draws(model):
    """The energies of independent draws."""
    run = maskov.sample(model, energy=TARGET, chains=400, seed=1, **COMMON)
    assert run.diagnose().verdict.state == "independent draws"
    return run.traces["energy_target"][-1]


@pytest.mark.slow
def test_a_population_is_like_draws_and_finds_that_log_z_is_zero(model, draws):
    # It starts from another order, so that nothing is the same but the target.
    run = maskov.sample(model, energy=TARGET, particles=64, populations=6, seed=2, **COMMON)
    last = run.traces["ancestor"][-1], run.traces["energy_target"][-1]
    figures = PopulationSummary(
        run.traces["log_weight"].reshape(-1, 6, 64), *(one.reshape(6, 64) for one in last)
    )
    assert abs(figures.log_z.value) < max(0.1, 4 * figures.log_z.error)
    mean = figures.mean(figures.energy)
    error = math.hypot(mean.error, draws.std(ddof=1) / math.sqrt(len(draws)))
    assert abs(mean.value - draws.mean()) < 4 * error


@pytest.mark.slow
def test_a_long_chain_that_starts_at_draws_stays_like_draws(model, draws):
    # Started in the target, exact chains never leave it: each end is one more draw.
    texts = [one.text for one in maskov.sample(
        model, energy=TARGET, chains=200, seed=3, **COMMON).samples]  # fmt: skip
    kept = [text for text in texts if len(model.encode(text)) == 6]
    run = maskov.sample(
        model, energy=TARGET, moves="site:1,span(2):1", texts=kept, chains=1, epochs=4, burn_in=0,
        seed=4, progress=False, workers=0,
    )  # fmt: skip
    assert run.summary().novel_rate > 0.05
    ends = torch.tensor(run.traces["energy_target"][-1])
    starts = torch.tensor([score.energy for score in maskov.score(model, kept, TARGET)])
    assert abs(stats.ttest_rel(ends, starts).statistic) < 4
    # Texts that tokenise otherwise were left out of both, not of the draws.
    assert len(kept) > 150
    assert stats.ks_2samp(ends, draws).pvalue > 1e-4
