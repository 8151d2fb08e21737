"""Replica exchange: the joint law of all replicas, by exact transition matrices."""

from dataclasses import dataclass, replace

import pytest
import torch

from maskov import (
    DelayedAcceptance,
    Exchange,
    Gibbs,
    InputError,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    Span,
    Sweep,
)
from maskov.exact import all_states, distribution, stationary
from maskov.execution.recorded import rounds_of
from maskov.kernels.base import whole_epoch
from maskov.kernels.compose import swapped
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from maskov.testing import check_exchange, exchange_matrix, joint_distribution, random_table
from small import random_state, tiny_bert

TABLE = random_table(length=2, size=2)
OFF = DelayedAcceptance(0)
INNER = {
    "raw, sites": Metropolis(Raw(), delayed=OFF),
    "norm, sites, T = 0.7": Metropolis(Norm(), target_temperature=0.7, delayed=OFF),
    "raw, spans": Metropolis(Raw(), Span(sizes=(2,)), delayed=OFF),
    "norm, spans, early tests": Metropolis(Norm(), Span(sizes=(2,)), delayed=DelayedAcceptance(1)),
    "a mixture": Mixture((Metropolis(Norm(), Span(sizes=(2,))), Metropolis(Norm(), delayed=OFF))),
}


@pytest.mark.parametrize("name", INNER)
def test_two_replicas_leave_their_joint_law_invariant(name):
    check_exchange(Exchange(INNER[name], (1.0, 0.4)), TABLE)


@pytest.mark.parametrize("ladder", [(1.0, 0.6, 0.3), (1.0, 0.8, 0.5, 0.2)], ids=str)
@pytest.mark.parametrize("epoch", [0, 1])
def test_swaps_of_many_replicas_are_in_detailed_balance(ladder, epoch):
    """All pairs of an epoch at once; whole epochs of so many have too many outcomes."""
    kernel = Exchange(Metropolis(Raw(), delayed=OFF), ladder, epoch=epoch)
    states = all_states(TABLE, 2)
    target = joint_distribution(kernel, TABLE, states)
    matrix = exchange_matrix(kernel, Scorer(TABLE), states, swaps_only=True)
    flow = target[:, None] * matrix
    assert (flow - flow.T).abs().max() < 1e-10
    moved = (matrix - torch.diag(matrix.diagonal())).sum()
    # Three replicas have one pair of each kind.
    assert moved > 0


def test_the_first_replica_has_the_target_for_its_law():
    kernel = Exchange(INNER["norm, sites, T = 0.7"], (1.0, 0.4))
    states = all_states(TABLE, 2)
    law = stationary(exchange_matrix(kernel, Scorer(TABLE), states)).view(4, 4)
    assert (law.sum(1) - distribution(TABLE, Norm(), states, 0.7)).abs().max() < 1e-10
    assert (law.sum(0) - distribution(TABLE, Norm(), states, 0.7 / 0.4)).abs().max() < 1e-10


@dataclass(frozen=True)
class WrongSign(Exchange):
    """Prefers the higher energy at the lower temperature."""

    def log_ratio(self, chains, colder, hotter):
        return -super().log_ratio(chains, colder, hotter)


@dataclass(frozen=True)
class AlwaysSwaps(Exchange):
    """Swaps without a test."""

    def log_ratio(self, chains, colder, hotter):
        return torch.zeros_like(super().log_ratio(chains, colder, hotter))


@dataclass(frozen=True)
class ForgetsTemperature(Exchange):
    """Leaves the target temperature out."""

    def log_ratio(self, chains, colder, hotter):
        return super().log_ratio(chains, colder, hotter) * self.target_temperature


@pytest.mark.parametrize("wrong", [WrongSign, AlwaysSwaps, ForgetsTemperature])
def test_wrong_swaps_are_found(wrong):
    kernel = wrong(INNER["norm, sites, T = 0.7"], (1.0, 0.4))
    with pytest.raises(AssertionError, match="swaps"):
        check_exchange(kernel, TABLE)
    states = all_states(TABLE, 2)
    law = stationary(exchange_matrix(kernel, Scorer(TABLE), states)).view(4, 4).sum(1)
    assert (law - distribution(TABLE, Norm(), states, 0.7)).abs().max() > 1e-3


def test_a_swap_takes_along_all_that_is_known_of_the_tokens():
    """What the rows cache after many swaps equals what is computed afresh; the rest stays."""
    model = tiny_bert()
    scorer, rng = Scorer(model), CounterRng(3)
    kernel = Exchange(Metropolis(Norm(), delayed=OFF), (1.0, 0.9, 0.8))
    chains = start = kernel.replicated(random_state(model, 4, 5))
    swaps = 0
    for epoch in range(6):
        kernel = kernel.at(epoch, None, None)
        chains = whole_epoch(kernel, chains, scorer, rng)
        again = kernel.end(chains, rng)  # once more, where the same number passes the test again
        swaps += int(swapped(chains, again, 3).sum())
        for after in (chains, again):
            fresh = kernel.init(after.forget(), scorer)
            assert torch.allclose(fresh.energy, after.energy)
            assert torch.allclose(fresh.pass_cache.hidden, after.pass_cache.hidden)
            for name in ("chain", "beta", "source", "step"):
                assert torch.equal(getattr(after, name), getattr(chains, name))
    assert swaps > 4
    assert torch.equal(chains.beta, start.beta)
    assert chains.replica.view(-1, 3).sort(1).values.tolist() == [[0, 1, 2]] * 4
    assert not torch.equal(chains.replica, start.replica)


def test_rows_of_one_chain_have_numbers_of_their_own():
    kernel = Exchange(Metropolis(Raw()), (1.0, 0.5))
    chains = kernel.replicated(random_state(tiny_bert(), 3, 4))
    assert chains.chain[::2].tolist() == [0, 1, 2]
    assert len(set(chains.chain.tolist())) == 6
    assert int(chains.chain.max()) < 2**31
    assert chains.beta.tolist() == [1.0, 0.5] * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exchange(Gibbs(), (1.0, 0.5)),
        lambda: Exchange(Mixture((Metropolis(Raw()), Gibbs())), (1.0, 0.5)),
        lambda: Exchange(Mixture((Metropolis(Raw()), Metropolis(Norm()))), (1.0, 0.5)),
        lambda: Exchange(Exchange(Metropolis(Raw()), (1.0, 0.5)), (1.0, 0.5)),
        lambda: Exchange(Metropolis(Raw())),
        lambda: Exchange(Metropolis(Raw()), replicas=17),
        lambda: Exchange(Metropolis(Raw()), (1.0, 0.5), replicas=3),
        lambda: Exchange(Metropolis(Raw()), (0.9, 0.5)),
        lambda: Exchange(Metropolis(Raw()), (1.0, 1.0)),
        lambda: Exchange(Metropolis(Raw()), (1.0, 0.0)),
        lambda: Exchange(Metropolis(Raw()), (1.0, float("nan"))),
    ],
)
def test_what_cannot_be_exchanged_is_refused(make):
    with pytest.raises(InputError):
        make()


def test_it_runs_in_lock_step_and_says_what_it_is():
    kernel = Exchange(Metropolis(Raw(), Site(positions=Sweep("left-to-right"))), (1.0, 0.5))
    assert kernel.leaves_invariant
    assert rounds_of(kernel) is None
    assert kernel.replicas == 2
    assert str(replace(kernel, ladder=())).endswith("2 replicas)")
