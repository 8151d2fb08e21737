"""What a run chooses by measurement cannot depend on what it keeps.

The law of (state, choice) after a run that starts at its target must be target × law of the choice.
That holds if the choice is independent of the start and of the random numbers of the run, and every
possible choice leaves the target invariant. Each of the three is tested here.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from maskov import DelayedAcceptance, Gibbs, Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.exact import all_states, distribution, invariance_error
from maskov.models.scorer import Scorer
from maskov.moves import Resize, Span
from maskov.random import CounterRng
from maskov.starts import Layout
from maskov.testing import step_matrix
from maskov.tuning.pilot import FIRST_CHAIN
from maskov.tuning.tune import tune
from small import random_table
from variable_table import VariableTable

MODEL = random_table(4, 3, scale=2.5)
LENGTHS = VariableTable(2, 4, size=3)
KERNEL = Mixture((Metropolis(Norm(), Span()), Metropolis(Norm(), Resize())))
# A run that has discarded chains find the weights of its lengths.
CONFIG = replace(
    sample(MODEL, Gibbs(), Schedule(epochs=1), chains=1, length=4).manifest.config,
    length_prior="flat",
)


def _tuned(text: str, seed: int):
    layout = Layout.of_texts(LENGTHS, [text], 1).resized([[(2, 4)]])
    return tune(KERNEL, CONFIG, layout, Scorer(LENGTHS), CounterRng(seed))


def test_the_choice_does_not_depend_on_where_chains_start():
    chosen = {_tuned(text, 3) for text in ("a a a", "c a b")}
    assert len(chosen) == 1
    assert next(iter(chosen)).passes > 0  # it did measure


def test_the_choice_depends_on_the_seed():
    """Else the test above would prove nothing."""
    assert len({_tuned("a a a", seed).lengths for seed in range(3)}) > 1


def test_the_pilot_and_the_run_share_no_random_number(monkeypatch):
    asked = []
    uniform = CounterRng.uniform

    def watched(self, chain, *rest):
        asked.append(chain.clone())
        return uniform(self, chain, *rest)

    monkeypatch.setattr(CounterRng, "uniform", watched)
    _tuned("a a a", 0)
    assert asked
    assert all(bool((chains >= FIRST_CHAIN).all()) for chains in asked)
    asked.clear()
    sample(MODEL, Metropolis(Raw()), Schedule(epochs=3), chains=5, length=4)
    assert asked
    assert all(bool((chains < FIRST_CHAIN).all()) for chains in asked)


def test_a_kernel_that_is_chosen_by_the_chain_itself_is_found_out():
    """Each of two kernels is exact; choosing between them by the state is not."""
    scorer, states = Scorer(MODEL), all_states(MODEL, 4)
    target = distribution(MODEL, Raw(), states)
    matrices = [
        step_matrix(Metropolis(Raw(), delayed=DelayedAcceptance(n)), scorer, states) for n in (0, 1)
    ]
    chosen = states.sum(1) % 2
    adapted = torch.stack(matrices)[chosen, torch.arange(len(states))]
    assert max(invariance_error(matrix, target) for matrix in matrices) < 1e-10
    assert invariance_error(adapted, target) > 1e-4
