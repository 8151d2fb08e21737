"""The matrices catch what goes wrong in other samplers: each mistake is made here and found."""

from dataclasses import dataclass, replace

import pytest
import torch

from maskov import MaskedConditional, Metropolis, Raw, Sweep, mask_predict
from maskov.exact import all_states, balance_error, distribution, fresh_state
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng, Purpose
from maskov.types import Sequences
from small import random_table, transition_matrix

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
        full = chains.pass_cache.hidden.log_softmax(2)
        reverse, forward = (
            (full.gather(2, tokens[..., None]).squeeze(2) * masked).sum(1)
            for tokens in (chains.tokens, proposal.tokens)
        )
        return fall + reverse - forward


@dataclass(frozen=True)
class KeepsRejected(Metropolis):
    """Returns the proposal from the reject branch, as a published sampler does."""

    def _moved(self, chains, proposal, comparison, accepted):
        return super()._moved(chains, proposal, comparison, torch.ones_like(accepted))


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("wrong", [ForgetsProposal, KeepsRejected, IgnoresTruncation])
def test_wrong_kernels_break_balance(wrong, masked):
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    target = distribution(model, Raw(), states)
    cut = MaskedConditional(top_p=0.7 if wrong is IgnoresTruncation else 1.0)
    errors = [
        balance_error(transition_matrix(kind(Raw(), Site(cut)), engine, states, masked), target)
        for kind in (Metropolis, wrong)
    ]
    assert errors[0] < 1e-10
    assert errors[1] > 1e-3


@dataclass(frozen=True)
class DecidesAt(CounterRng):
    """Decides every test at one number."""

    number: float = 0.0

    def uniform(self, chain, step, purpose, index=None):
        found = super().uniform(chain, step, purpose, index)
        return torch.full_like(found, self.number) if purpose == Purpose.ACCEPT else found


def _step(kernel, masked, number):
    """Return many chains, and a step of them that masks these positions."""
    model = random_table()
    states = all_states(model, 3).repeat(9, 1)
    start = fresh_state(states, masked.expand(states.shape))
    start = replace(start, chain=torch.arange(len(states)))
    positions = Sweep("left-to-right", int(masked.sum()))
    kernel, rng = replace(kernel, move=replace(kernel.move, positions=positions)), DecidesAt(0)
    start = kernel.begin(kernel.init(start, Scorer(model)), rng)
    rng = replace(rng, number=number)
    return states, *kernel.step(start, torch.arange(len(states)), Scorer(model), rng)


@pytest.mark.parametrize("masked", MASKS)
def test_acceptance_turns_exactly_at_its_probability(masked):
    """The reported probability is where the decision of the real code changes."""
    for number in (0.0, 0.05, 0.3, 0.7, 0.95, 1 - 2**-53):
        states, after, info = _step(Metropolis(Raw()), masked, number)
        expected = info.log_acceptance.exp() > number
        assert torch.equal(info.accepted, expected)
        wanted = torch.where(expected[:, None], info.proposal.tokens, states)
        assert torch.equal(after.tokens, wanted)
        assert torch.equal(info.novel, expected & (info.proposal.tokens != states).any(1))
    # What was rejected is reported, too.
    assert not expected.all()
    assert (info.proposal.tokens[~expected] != states[~expected]).any(1).all()


def test_mask_predict_leaves_no_target_invariant_and_says_so():
    """It maps every sequence to one other: no distribution with many states survives that."""
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    kernel = mask_predict(3)
    assert not kernel.leaves_invariant
    sites = engine.cache(Sequences(states, torch.full((len(states),), 3)))
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
    kernel = Metropolis(Raw(), Site(MaskedConditional(top_k=1)))
    states, after, info = _step(kernel, MASKS[0], 0.0)
    outside = info.proposal.log_q_reverse == -torch.inf
    assert outside.any()
    assert (info.log_acceptance[outside] == -torch.inf).all()
    assert not info.accepted[outside].any()
    assert torch.equal(after.tokens[outside], states[outside])
