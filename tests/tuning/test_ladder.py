"""The ladder that a run finds: fair swap rates, and nothing of the chains that are kept."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import torch

import maskov
from maskov import DelayedAcceptance, Exchange, InputError, Metropolis, Norm, Raw, Schedule
from maskov.energies import TextEnergy
from maskov.exact import all_states
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.starts import Layout
from maskov.tuning.tune import FIRST_CHAIN, find_ladder, pilot_chains
from maskov.types import Sequences
from small import random_table, tiny_bert

MODEL = tiny_bert("red green blue white")
OFF = DelayedAcceptance(0)


@dataclass(frozen=True)
class Noted(CounterRng):
    """Notes for which chains numbers are drawn."""

    chains: set = field(default_factory=set)

    def uniform(self, chain, step, purpose, index=None):
        self.chains.update(chain.tolist())
        return super().uniform(chain, step, purpose, index)


def exact_rates(model, length, energy, ladder):
    """Return the swap rates under the joint law, by enumerating all pairs of states."""
    states = all_states(model, length)
    lengths = torch.full((len(states),), length)
    sequences = Sequences(states, lengths, source=torch.zeros_like(lengths))
    sites = Scorer(model).cache(sequences)
    value = energy(model, Sequences(states, lengths, sites))
    rates = []
    for one, other in pairwise(ladder):
        law = torch.outer((-one * value).softmax(0), (-other * value).softmax(0))
        chance = ((one - other) * (value[:, None] - value)).clamp(max=0).exp()
        rates.append(float((law * chance).sum()))
    return rates


@pytest.mark.parametrize("seed", [0, 1])
def test_neighbours_swap_at_a_fair_rate(seed):
    model = random_table(length=6, size=3, seed=2, scale=2.5)
    run = maskov.sample(
        model, Metropolis(Norm()), Schedule(epochs=1), replicas=3, chains=1, length=6, seed=seed
    )
    rates = exact_rates(model, 6, Norm(), run.manifest.ladder)
    assert all(0.2 < rate < 0.55 for rate in rates), (run.manifest.ladder, rates)


def test_the_texts_that_chains_start_from_do_not_decide_it():
    """The pilots have their lengths, and nothing else of them."""

    def ladder(*words):
        texts = [" ".join([word] * 4) for word in words]
        run = maskov.sample(
            MODEL, Metropolis(Raw()), Schedule(epochs=1), replicas=3, texts=texts, chains=2, seed=5
        )
        return run.manifest.ladder

    assert ladder("red", "green") == ladder("blue", "white")


def test_pilots_have_chains_and_random_numbers_of_their_own():
    layout = Layout.of_texts(MODEL, ["red green blue", "white red green"], 2)
    rng = Noted(1)
    kernel = Exchange(Metropolis(Raw(), delayed=OFF), replicas=16)
    find_ladder(kernel, layout, Scorer(MODEL), rng)
    assert min(rng.chains) >= FIRST_CHAIN
    assert max(rng.chains) < 2**32
    assert len(rng.chains) == 16 * 4
    # Of a run: the last row of the last chain that one run may have.
    ladder = tuple(1 - rung / 20 for rung in range(16))
    tokens = torch.zeros((1, 3), dtype=torch.long)
    zero = torch.zeros(1, dtype=torch.long)
    last = Exchange(kernel.kernel, ladder).replicated(
        maskov.types.Chains.at(tokens, zero + 3, tokens == 0, torch.tensor([10**8 - 1]), zero)
    )
    assert int(last.chain.max()) < FIRST_CHAIN


def test_frozen_words_of_a_template_stay():
    layout = Layout.of_templates(MODEL, ["red [MASK] blue [MASK]"], 2)
    kernel = Metropolis(Raw(), delayed=OFF)
    pilots = pilot_chains(layout, 4, kernel, Scorer(MODEL), CounterRng(0))
    frozen = ~pilots.free
    expected = torch.tensor(layout.tokens[0]).expand_as(pilots.tokens)
    assert torch.equal(pilots.tokens[frozen], expected[frozen])
    assert pilots.free.sum(1).tolist() == [2] * len(pilots.chain)


def test_a_constant_energy_has_a_ladder_too():
    kernel = Metropolis(TextEnergy(lambda texts: [0.0 for _ in texts]))
    run = maskov.sample(MODEL, kernel, Schedule(epochs=1), replicas=16, chains=1, length=3)
    ladder = run.manifest.ladder
    assert len(ladder) == 16
    assert sorted(ladder, reverse=True) == list(ladder)
    assert ladder[-1] > 0


def _only_red(texts):
    return [0.0 if set(text.split()) == {"red"} else float("inf") for text in texts]


def test_random_starts_of_probability_zero_ask_for_a_ladder():
    red = TextEnergy(_only_red)
    given = {"schedule": Schedule(epochs=1), "texts": ["red red red red"], "chains": 1}
    with pytest.raises(InputError, match="Give one with --replicas"):
        maskov.sample(MODEL, Metropolis(red), replicas=2, **given)
    assert maskov.sample(MODEL, Metropolis(red), replicas=(1.0, 0.5), **given).samples
