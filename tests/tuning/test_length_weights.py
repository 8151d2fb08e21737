"""Weights of lengths that discarded chains find: how even lengths are, and what is said of it."""

import pytest
import torch

from maskov import Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.energies.counting import Length, LengthPrior
from maskov.exact import all_sequences, distribution
from maskov.moves import Resize, Site
from maskov.tuning import EVEN, correction
from small import random_table

TABLE = random_table((1, 3), size=2)
MOVES = (Site(), Resize(pairs=((0, 1),)))
SHORT = {"schedule": Schedule(epochs=1), "chains": 1, "length": (1, 3), "progress": False}


def kernel(energy, temperature=1.0):
    return Mixture(tuple(Metropolis(energy, move, temperature) for move in MOVES))


def shares(energy, tuning, temperature):
    """Return the share of each length under the weights found, by enumeration."""
    start = all_sequences(TABLE, 1, 3)
    whole = energy + temperature * LengthPrior(tuning.first_length, tuning.lengths)
    law = distribution(TABLE, whole, start.tokens, temperature, start.lengths)
    return torch.stack([law[start.lengths == n].sum() for n in (1, 2, 3)])


@pytest.mark.parametrize(
    ("energy", "temperature"),
    [(Norm() + Length(3.0, 0.5), 1.0), pytest.param(Raw(), 0.5, marks=pytest.mark.slow)],
)
def test_lengths_are_about_even_however_short_an_epoch_is(energy, temperature):
    """Within twice the factor that visits of the discarded chains kept; an epoch has two steps."""
    run = sample(TABLE, kernel(energy, temperature), **SHORT)
    even = 3 * shares(energy, run.manifest.tuning, temperature)
    assert run.manifest.tuning.evenness >= EVEN
    assert even.min() > EVEN / 2, even
    assert even.max() < 2 / EVEN, even


class Told:
    """A listener that keeps what it is told."""

    def __init__(self):
        self.notes = []

    def __getattr__(self, name):
        return lambda *told: self.notes.extend(told) if name == "noted" else None


def test_what_was_not_reached_is_said_and_kept(monkeypatch):
    """A few steps are not enough for lengths whose energies are far apart."""
    monkeypatch.setattr("maskov.tuning._LENGTH_STEPS", 4)
    monkeypatch.setattr("maskov.tuning._MEASURED", 1)
    told = Told()
    run = sample(TABLE, kernel(Norm() + Length(1.0, 0.1)), listener=told, **SHORT)
    assert run.manifest.tuning.evenness < EVEN
    (note,) = (one for one in run.manifest.notes if "weights of lengths" in one)
    assert note in told.notes


def test_the_correction_undoes_the_shares_of_a_reversible_chain():
    """Whatever the visits were: those of the middle length are few."""
    share = torch.tensor([0.7, 0.05, 0.2, 0.05], dtype=torch.float64)
    rates = torch.minimum(share[None, :] / share[:, None], torch.ones(4, 4)) / 4
    rates = rates.fill_diagonal_(0.0)
    rates += torch.diag(1 - rates.sum(1))
    visits = torch.tensor([1e8, 1e6, 1e7, 1e8], dtype=torch.float64)
    found = correction(visits[:, None] * rates)
    assert torch.allclose(found.diff(), -share.log().diff(), atol=1e-3)


@pytest.mark.parametrize("explores", [False, True])
def test_a_length_that_was_not_visited_gains_only_where_chains_explore(explores):
    moves = torch.zeros((4, 4), dtype=torch.float64)
    moves[:2, :2] = 50.0
    found = correction(moves, explores)
    assert torch.allclose(found[:2].diff(), torch.zeros(1).double(), atol=1e-6)
    assert (found[2] > found[1] + 1) == explores
    assert torch.allclose(found[2:].diff(), torch.zeros(1).double(), atol=1e-3)
