"""The matrices catch what goes wrong in other samplers: each mistake is made here and found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from maskov import MaskedConditional, Metropolis, Raw, mask_predict
from maskov.exact import (
    all_states,
    balance_error,
    distribution,
    every_move,
    fresh_state,
    transition_matrix,
)
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from maskov.types import Sequences
from small import random_table

MASKS = [torch.tensor([True, False, False]), torch.tensor([True, False, True])]


@dataclass(frozen=True)
class ForgetsProposal(Metropolis):
    """Accepts by the energies alone, as if the proposal were symmetric."""

    def log_ratio(self, chains, proposal, fall):
        return fall


@dataclass(frozen=True)
class IgnoresTruncation(Metropolis):
    """Rng from the truncated conditional, but corrects by the full one."""

    def log_ratio(self, chains, proposal, fall):
        masked = proposal.masked
        # The vectors of a table are its scores, and no token of it is forbidden.
        full = chains.sites.hidden[masked].log_softmax(1)
        old, new = chains.tokens[masked], proposal.tokens[masked]
        reverse, forward = (full.gather(1, tokens[:, None]).squeeze(1) for tokens in (old, new))
        return fall + reverse - forward


@dataclass(frozen=True)
class KeepsRejected(Metropolis):
    """Returns the proposal from the reject branch, as a published sampler does."""

    def _moved(self, chains, proposal, comparison, accepted):
        return super()._moved(chains, proposal, comparison, torch.ones_like(accepted))


@pytest.mark.parametrize("masked", MASKS)
def test_dropping_the_proposal_ratio_breaks_balance(masked):
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    target = distribution(model, Raw(), states)
    assert (
        balance_error(transition_matrix(Metropolis(Raw()), engine, states, masked), target) < 1e-10
    )
    wrong = transition_matrix(ForgetsProposal(Raw()), engine, states, masked)
    assert balance_error(wrong, target) > 1e-3


def test_correcting_a_truncated_proposal_by_full_probabilities_breaks_balance():
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    target = distribution(model, Raw(), states)
    cut = MaskedConditional(top_p=0.7)
    right = transition_matrix(Metropolis(Raw(), Site(cut)), engine, states, MASKS[0])
    wrong = transition_matrix(IgnoresTruncation(Raw(), Site(cut)), engine, states, MASKS[0])
    assert balance_error(right, target) < 1e-10
    assert balance_error(wrong, target) > 1e-3


@pytest.mark.parametrize("masked", MASKS)
def test_a_rejected_proposal_is_not_kept(masked):
    """At a draw of almost 1 only certain moves are accepted; all others must stay put."""
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)

    def wrongly_moved(kernel) -> int:
        source, after, info = every_move(kernel, engine, states, masked, accept_draw=1 - 2**-53)
        assert not info.accepted.all()
        stayed = states[source][~info.accepted]
        return int((after.tokens[~info.accepted] != stayed).any(1).sum())

    assert wrongly_moved(Metropolis(Raw())) == 0
    assert wrongly_moved(KeepsRejected(Raw())) > 0


@pytest.mark.parametrize("masked", MASKS)
def test_acceptance_turns_exactly_at_its_probability(masked):
    """The reported probability is where the decision of the real code changes."""
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    kernel = Metropolis(Raw())
    for draw in (0.0, 0.05, 0.3, 0.7, 0.95):
        source, after, info = every_move(kernel, engine, states, masked, accept_draw=draw)
        expected = info.log_acceptance.exp() > draw
        assert torch.equal(info.accepted, expected)
        wanted = torch.where(expected[:, None], info.proposal.tokens, states[source])
        assert torch.equal(after.tokens, wanted)
        assert torch.equal(info.novel, expected & (info.proposal.tokens != states[source]).any(1))


def test_info_holds_the_proposal_also_when_it_was_rejected():
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    source, _, info = every_move(Metropolis(Raw()), engine, states, MASKS[0], 1 - 2**-53)
    rejected = ~info.accepted
    assert (info.proposal.tokens[rejected] != states[source][rejected]).any(1).all()


def test_mask_predict_leaves_no_target_invariant_and_says_so():
    """It maps every sequence to one other: no distribution with many states survives that."""
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    kernel = mask_predict(3)
    assert not kernel.leaves_invariant
    sites = engine.sites(Sequences(states, torch.full((len(states),), 3)))
    sure = (sites.logit - sites.log_normaliser).exp()
    state = kernel.begin(replace(fresh_state(states), confidence=sure), CounterRng(0))
    rows = torch.arange(len(states))
    after, _ = kernel.at(2, None, None).step(state, rows, engine, CounterRng(0))
    target = distribution(model, Raw(), states)
    index = {tuple(tokens): i for i, tokens in enumerate(states.tolist())}
    moved = torch.zeros_like(target)
    for chance, tokens in zip(target, after.tokens.tolist(), strict=True):
        moved[index[tuple(tokens)]] += chance
    assert (moved - target).abs().max() > 1e-2


def test_a_current_token_outside_the_kept_set_makes_the_reverse_impossible():
    """The move back has probability zero, so the move is rejected whatever the energies say."""
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    source, after, info = every_move(
        Metropolis(Raw(), Site(MaskedConditional(top_k=1))),
        engine,
        states,
        MASKS[0],
        accept_draw=0.0,
    )
    outside = info.proposal.log_q_reverse == -torch.inf
    assert outside.any()
    assert (info.log_acceptance[outside] == -torch.inf).all()
    assert not info.accepted[outside].any()
    assert torch.equal(after.tokens[outside], states[source][outside])
