"""Ordered energies: normalised, cached, drawn from, and their kernels exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy import stats

from maskov import Metropolis, Norm, Site, Span, parse_energy
from maskov.constraints import ContainsWords
from maskov.exact import all_chains, all_states
from maskov.kernels import Draws, Mixture, Redraw
from maskov.models.scorer import Scorer
from maskov.moves import Resize
from maskov.random import CounterRng
from maskov.testing import check_energy, check_kernel, check_move, random_table
from maskov.types import Chains, Sequences

TEXTS = (
    "ordered",
    "ordered(seed=3)",
    "ordered(left-to-right)",
    "ordered(right-to-left)",
    "ordered(groups=2)",
    "ordered(temperature=0.7)",
    "ordered(rule=confident)",
    "ordered(rule=confident, temperature=2.0)",
    "ordered(orders=3)",
    "ordered(orders=2, groups=2, temperature=0.5)",
)
TABLE = random_table(3, size=4, forbidden=("d",))
LENGTHS = random_table((1, 3), size=2)


def _sequences(model, length):
    states = all_states(model, length)
    return Sequences(states, torch.full((len(states),), length))


@pytest.mark.parametrize("text", TEXTS)
def test_probabilities_add_up_to_one(text):
    energy = parse_energy(text)
    assert str(parse_energy(str(energy))) == str(energy)
    for model, length in ((TABLE, 3), (LENGTHS, 1), (LENGTHS, 2)):
        total = (-energy(model, _sequences(model, length))).exp().sum()
        assert abs(float(total) - 1) < 1e-12


@pytest.mark.parametrize("text", TEXTS)
def test_blanks_of_a_template_are_normalised_given_the_rest(text):
    chains = all_chains(TABLE, 3, 3, frozen=(1, 2))
    total = (-parse_energy(text)(TABLE, chains.sequences)).exp().sum()
    assert abs(float(total) - 1) < 1e-12


@pytest.mark.parametrize("text", TEXTS)
def test_draws_as_proposals(text):
    law = parse_energy(text)
    check_move(Redraw(law), TABLE, 3)
    # The target knows log q of the current sequence, whatever its weight there is.
    for target in (
        law + 0.4 * Norm(),
        0.5 * law,
        Norm() + 0.3 * law + parse_energy("ordered(seed=9)"),
    ):
        redraw = Metropolis(target, Redraw(law), target_temperature=1.3)
        check_kernel(Mixture((redraw, Metropolis(target, Site(), 1.3))), TABLE, 3)


@pytest.mark.parametrize("text", ["ordered", "ordered(rule=confident)", "ordered(orders=2)"])
def test_draws_as_proposals_under_constraints(text):
    law = parse_energy(text)
    redraw = Redraw(replace(law, constraints=(ContainsWords(("a",)),)))
    # The part of the target is not drawn from: it knows nothing of constraints.
    check_kernel(Metropolis(law + 0.4 * Norm(), redraw), TABLE, 3)


@pytest.mark.parametrize("text", TEXTS)
def test_values_caches_and_stages(text):
    check_energy(parse_energy(text))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("move", [Site(), Span(sizes=(2,))], ids=str)
def test_chains_have_the_target(text, move):
    check_kernel(Metropolis(parse_energy(text), move))


@pytest.mark.parametrize("text", ["ordered", "ordered(orders=2)", "ordered(rule=confident)"])
def test_chains_of_sums_have_the_target(text):
    check_kernel(Metropolis(0.7 * parse_energy(text) + 0.4 * Norm(), Span(sizes=(1, 2)), 0.8))


@pytest.mark.parametrize("text", ["ordered", "ordered(rule=confident)", "ordered(groups=2)"])
def test_chains_that_change_their_length_have_the_target(text):
    check_kernel(Metropolis(parse_energy(text) + Norm(), Resize()), LENGTHS, lengths=(1, 3))


@pytest.mark.parametrize("text", TEXTS)
def test_draws_have_the_probabilities(text):
    # The frequency of every sequence in independent draws, and the energy each was drawn with.
    energy, count = parse_energy(text), 4000
    states = all_states(TABLE, 3)
    law = (-energy(TABLE, _sequences(TABLE, 3))).exp()
    blank = Chains.at(torch.full((count, 3), TABLE.mask_id))
    chains = replace(blank, chain=torch.arange(count))
    kernel, scorer = Draws(energy), Scorer(TABLE)
    after, info = kernel.step(kernel.init(chains, scorer), chains.chain, scorer, CounterRng(0))
    number = (after.tokens[:, None] == states).all(2).int().argmax(1)
    assert torch.allclose(after.energy, -law[number].log(), atol=1e-9)
    seen = torch.bincount(number, minlength=len(states)).double()
    expected = count * law
    rare = expected < 5
    pairs = [(seen[~rare], expected[~rare]), (seen[rare].sum()[None], expected[rare].sum()[None])]
    observed, hoped = (torch.cat(one).numpy() for one in zip(*pairs, strict=True))
    kept = hoped > 0
    assert stats.chisquare(observed[kept], hoped[kept]).pvalue > 1e-4
    assert (info.passes <= 3 * (energy.orders + 1)).all()


def test_parts_with_one_order_share_their_passes():
    scorer, given = Scorer(TABLE), _sequences(TABLE, 3)
    warm, cool = parse_energy("ordered"), parse_energy("ordered(temperature=0.5)")
    first = warm.evaluate(scorer, given).passes
    spent = scorer.passes
    second = cool.evaluate(scorer, given)
    assert int(first.sum()) == spent
    assert int(second.passes.sum()) == scorer.passes - spent == 0
    assert torch.allclose(second.value, cool(TABLE, given), atol=1e-12)
    # Other sequences are asked again.
    warm.evaluate(scorer, given.rows(torch.arange(5)))
    assert scorer.passes == spent + 15
