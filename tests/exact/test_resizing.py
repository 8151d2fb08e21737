"""Moves that change the length: transition matrices over all sequences of several lengths."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from maskov import DelayedAcceptance, Metropolis, Mixture, Norm, Raw, Schedule, sample
from maskov.config import LinearSchedule
from maskov.energies.counting import LengthPrior
from maskov.exact import all_sequences, distribution, invariance_error, step_matrix
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Resize, Site, Span
from maskov.testing import check_kernel, check_move, random_table
from maskov.tuning import weighed
from small import tiny_bert

TABLE = random_table((1, 3), size=2)
BERT = tiny_bert("red green")


@pytest.mark.parametrize(
    ("pairs", "nearest", "energy"),
    [
        (((0, 1),), (1, 2), Raw()),
        (((0, 1),), 0, Norm()),
        (((1, 2),), 1, Norm()),
        (((1, 3),), 0, Raw()),
        (((0, 1), (2, 3)), 1, Norm()),
    ],
    ids=str,
)
def test_tables(pairs, nearest, energy):
    kernel = Metropolis(energy, Resize(pairs=pairs), delayed=DelayedAcceptance(nearest))
    check_kernel(kernel, TABLE, lengths=(1, 3), seeds=2)


@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
def test_tiny_transformers(energy):
    conditional = MaskedConditional(0.8, top_k=1, epsilon=0.2)
    kernel = Metropolis(energy, Resize(conditional, ((0, 1), (1, 2))), 0.7, DelayedAcceptance(1))
    check_kernel(kernel, BERT, lengths=(1, 3), seeds=2)


@pytest.mark.parametrize(
    ("energy", "nearest"), [(Raw(groups=2), 0), (Norm(groups=2), 1), (Norm(groups=1), 0)], ids=str
)
def test_energies_of_groups(energy, nearest):
    parts = (Site(), Span(sizes=(2,)), Resize(pairs=((0, 1), (1, 2))))
    kernels = tuple(Metropolis(energy, move, delayed=DelayedAcceptance(nearest)) for move in parts)
    check_kernel(Mixture(kernels, (1.0, 1.0, 2.0)), TABLE, lengths=(1, 3), seeds=2)
    check_kernel(kernels[2], BERT, lengths=(1, 3), seeds=1)


def test_a_mixture_with_sites_and_spans():
    parts = (Site(), Span(sizes=(2,)), Resize())
    kernels = tuple(Metropolis(Norm(), move, delayed=DelayedAcceptance(1)) for move in parts)
    check_kernel(Mixture(kernels, (1.0, 2.0, 1.0)), TABLE, lengths=(1, 3), seeds=2)


PRIOR = LengthPrior(1, (0.0, 1.5, -2.0))
PARTS = (Site(), Resize(pairs=((0, 1),)))
WEIGHED = {
    "the kernel's T": (0.5, None),
    "the schedule's T": (1.0, 0.5),
    "annealed from another T": (2.0, 0.5),
}


def log_law(start, temperature):
    """Return log w(n) − E/T of all sequences, up to a constant."""
    weights = torch.tensor(PRIOR.log_weights, dtype=torch.float64)
    return (
        distribution(TABLE, Norm(), start.tokens, temperature, start.lengths).log()
        + (weights[start.lengths - PRIOR.first])
    )


@pytest.mark.parametrize("name", WEIGHED)
def test_weights_of_lengths_are_not_divided_by_the_temperature(name):
    """The law is w(n) exp(−E/T)."""
    own, scheduled = WEIGHED[name]
    early = DelayedAcceptance(1)
    kernels = tuple(Metropolis(Norm(), move, own, early) for move in PARTS)
    kernel = weighed(Mixture(kernels), PRIOR).at(3, scheduled, None)
    start = all_sequences(TABLE, 1, 3)
    law = log_law(start, 0.5).softmax(0)
    matrix = step_matrix(kernel, Scorer(TABLE), start)
    assert invariance_error(matrix, law) < 1e-10


def test_the_energies_of_an_annealed_run_have_the_weights_of_their_epoch():
    """T is 2, 1.5, 1, 0.5; log w(3) is 2."""
    schedule = Schedule(epochs=4, target_temperature=LinearSchedule(2.0, 0.5, 0.5))
    kernel = Mixture(tuple(Metropolis(Norm(), move) for move in PARTS))
    run = sample(
        TABLE, kernel, schedule, chains=4, length=(1, 3),
        length_prior={1: 1, 2: math.e, 3: math.exp(2)}, progress=False,
    )  # fmt: skip
    weights = run.traces["lengths"] - 1.0
    heat = np.array([2.0, 1.5, 1.0, 0.5])[:, None]
    expected = run.traces["energy_norm"] - heat * weights
    assert np.allclose(run.traces["energy_target"], expected)


def test_every_length_is_reached():
    start, scorer = all_sequences(TABLE, 1, 3), Scorer(TABLE)
    kernel = Metropolis(Norm(), Resize(pairs=((0, 1),)), delayed=DelayedAcceptance(0))
    matrix = step_matrix(kernel, scorer, start)
    for less in (1, 2):
        here, there = start.lengths == less, start.lengths == less + 1
        assert matrix[here][:, there].sum() > 0
        assert matrix[there][:, here].sum() > 0


@dataclass(frozen=True)
class _NoLengthFactor(Resize):
    """Deletes any of m tokens but inserts at one of m places only: the numbers do not cancel."""

    def propose(self, chains, rows, scorer, rng):
        proposal = super().propose(chains, rows, scorer, rng)
        sizes = (chains.region[rows] >= 0).sum(1).double()
        wrong = torch.where(proposal.resized.size > 0, sizes.log() - (sizes + 1).log(), 0.0)
        return replace(proposal, log_q_forward=proposal.log_q_forward - wrong)


@dataclass(frozen=True)
class _TakesFrozen(Resize):
    """Counts every token to the region whose length may change."""

    def propose(self, chains, rows, scorer, rng):
        grown = replace(chains, region=torch.where(chains.inside, 0, -1))
        return super().propose(grown, rows, scorer, rng)


def test_any_target():
    check_move(Resize(), lengths=(2, 4))
    with pytest.raises(AssertionError, match="not allowed"):
        check_move(_TakesFrozen(), lengths=(2, 4))


def test_wrong_moves_are_found_out():
    kernel = Metropolis(Norm(), _NoLengthFactor(), delayed=DelayedAcceptance(0))
    with pytest.raises(AssertionError, match="detailed balance"):
        check_kernel(kernel, TABLE, lengths=(1, 3))
