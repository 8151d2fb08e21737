"""What a run chooses by measurement cannot depend on what it keeps.

The law of (state, choice) after a run that starts at its target must be target × law of the choice.
That holds if the choice is independent of the start and of the random numbers of the run, and every
possible choice leaves the target invariant. Each of the three is tested here.
"""

import pytest
import torch

from maskov import DelayedAcceptance, Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.constraints import ContainsWords, MaxEdits
from maskov.exact import all_states, distribution, invariance_error
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Resize, Site, Span
from maskov.random import CounterRng
from maskov.starts import Layout
from maskov.testing import step_matrix
from maskov.tuning import FIRST_CHAIN, pilot_chains, tune
from small import random_table, tiny_bert

MODEL = random_table(4, 3, scale=2.5)
OFF = DelayedAcceptance(0)
LENGTHS = random_table((2, 4), size=3)
KERNEL = Mixture((Metropolis(Norm(), Span()), Metropolis(Norm(), Resize())))


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """A dependence on the start is largest where chains make few steps."""
    monkeypatch.setattr("maskov.tuning._LENGTH_CHAINS", 3)
    monkeypatch.setattr("maskov.tuning._LENGTH_STEPS", 8)
    monkeypatch.setattr("maskov.tuning._MEASURED", 4)


def _tuned(text: str, seed: int):
    layout = Layout.of_texts(LENGTHS, [text], 1).resized([[(2, 4)]])
    return tune(KERNEL, Schedule(epochs=1), "flat", layout, Scorer(LENGTHS), CounterRng(seed))


def test_the_choice_does_not_depend_on_where_chains_start():
    chosen = {_tuned(text, 3) for text in ("a a a", "c a b")}
    assert len(chosen) == 1
    assert next(iter(chosen)).passes > 0  # it did measure


WORDS = tiny_bert("red green blue")
CONSTRAINTS = {"contains": ContainsWords(("red",)), "edits": MaxEdits(2)}


def constrained(constraint):
    """Return moves that change the length and keep a constraint."""
    conditional = MaskedConditional(constraints=(constraint,))
    moves = (Site(conditional), Resize(conditional, ((0, 1),)))
    return Mixture(tuple(Metropolis(Norm(), move, delayed=OFF) for move in moves))


def test_weights_of_lengths_under_constraints_do_not_depend_on_where_chains_start():
    """All of these texts meet the constraint, and have the same bounds."""
    kernel, chosen = constrained(CONSTRAINTS["contains"]), set()
    for text in ("red red red", "red blue green", "green green red"):
        layout = Layout.of_texts(WORDS, [text], 1).resized([[(2, 4)]])
        chosen.add(tune(kernel, Schedule(epochs=2), "flat", layout, Scorer(WORDS), CounterRng(3)))
    assert len(chosen) == 1


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_pilots_meet_constraints_at_lengths_that_allow_it(name):
    """Two edits of a text of six allow four to eight tokens, and the bounds three to twelve."""
    text, kernel = "red green blue red red green", constrained(CONSTRAINTS[name])
    layout = Layout.of_texts(WORDS, [text], 1).resized([[(3, 12)]])
    pilots = pilot_chains(layout, 10, kernel, Scorer(WORDS), CounterRng(0))
    assert kernel.conditional.possible(pilots.sequences, WORDS).all()
    expected = {"contains": range(3, 13), "edits": range(4, 9)}[name]
    assert set(pilots.lengths.tolist()) == set(expected)
    assert any(tokens != WORDS.encode(text) for tokens in pilots.tokens.tolist())


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
