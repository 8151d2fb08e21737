"""Ordered energies: normalised, cached, drawn from, and their kernels exact."""

from __future__ import annotations

import pytest
import torch

from maskov import Metropolis, Norm, Site, Span, parse_energy
from maskov.exact import all_chains, all_states
from maskov.moves import Resize
from maskov.testing import check_energy, check_kernel, random_table
from maskov.types import Sequences

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
    check_kernel(Metropolis(parse_energy(text) + Norm(), Resize()), LENGTHS)
