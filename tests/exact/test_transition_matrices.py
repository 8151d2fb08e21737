"""Whole transition matrices against their claimed targets, wrong kernels, and what chains keep."""

from dataclasses import dataclass, replace

import pytest
import torch

from maskov import (
    DelayedAcceptance,
    Gibbs,
    MaskedConditional,
    Metropolis,
    Norm,
    Raw,
    Sweep,
    counterexample,
    mask_predict,
)
from maskov.exact import (
    all_states,
    balance_error,
    distribution,
    invariance_error,
    joined,
    stationary,
    step_matrix,
    sweep_matrix,
)
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng, Purpose
from maskov.types import Chains, Sequences
from small import epoch, random_state, random_table, tiny_bert, transition_matrix

TOLERANCE = 1e-10

MODELS = {
    "counterexample": counterexample(),
    "table": random_table(),
    # A token that scores well but may not be sampled: the target is over the others alone.
    "table with a forbidden token": random_table(size=4, seed=1, forbidden=("b",)),
    "transformer": tiny_bert(),
}
PROPOSALS = {
    "plain": MaskedConditional(),
    "cold": MaskedConditional(temperature=0.5),
    "hot": MaskedConditional(temperature=2.0),
    "top-k": MaskedConditional(top_k=2),
    "nucleus": MaskedConditional(top_p=0.8),
    "nucleus, defended": MaskedConditional(top_p=0.6, epsilon=0.05),
    "all at once": MaskedConditional(temperature=1.3, top_k=2, top_p=0.9, epsilon=0.02),
}
ENERGIES = {"raw": Raw(), "norm": Norm(), "sum": 0.3 * Raw() + 1.2 * Norm()}
TEMPERATURES = (0.4, 1.0, 2.5)


def _length(model) -> int:
    return min(3, model.max_length)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("name", MODELS)
def test_metropolis_is_in_detailed_balance(name, energy, proposal):
    # One of three temperatures, in turn: every proposal and every energy meets each of them.
    turn = list(MODELS).index(name) + list(ENERGIES).index(energy) + list(PROPOSALS).index(proposal)
    temperature = TEMPERATURES[turn % 3]
    model = MODELS[name]
    states = all_states(model, _length(model))
    move = Site(PROPOSALS[proposal], Sweep("left-to-right", states.shape[1]))
    # Every set of places that a step may mask, side by side.
    masks = torch.cartesian_prod(*[torch.tensor([False, True])] * states.shape[1])[1:]
    start = joined([Chains.at(states, free=masked.expand(states.shape)) for masked in masks])
    target = distribution(model, ENERGIES[energy], states, temperature).repeat(len(masks))
    kernel = Metropolis(ENERGIES[energy], move, target_temperature=temperature)
    matrix = step_matrix(kernel, Scorer(model), start)
    assert (matrix.sum(1) - 1).abs().max() < TOLERANCE
    assert matrix.min() > -TOLERANCE
    assert balance_error(matrix, target) < TOLERANCE


@pytest.mark.parametrize("order", ["random", "left-to-right"])
@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("name", ["table", "table with a forbidden token", "transformer"])
def test_a_whole_sweep_of_metropolis_leaves_its_target_invariant(name, block, order):
    model, engine = MODELS[name], Scorer(MODELS[name])
    states = all_states(model, _length(model))
    for energy, temperature in ((Raw(), 0.5), (Norm(), 1.0)):
        target = distribution(model, energy, states, temperature)
        kernel = Metropolis(
            energy,
            Site(MaskedConditional(top_p=0.9, epsilon=0.01), Sweep(order, block)),
            target_temperature=temperature,
        )
        assert kernel.leaves_invariant
        for seed in range(2):
            assert invariance_error(sweep_matrix(kernel, engine, states, seed), target) < TOLERANCE


@pytest.mark.parametrize("name", ["table", "transformer"])
@pytest.mark.parametrize("block", [1, 2])
def test_degenerate_gibbs_leaves_neither_target_invariant_and_says_so(name, block):
    model, engine = MODELS[name], Scorer(MODELS[name])
    states = all_states(model, _length(model))
    kernel = Gibbs(Site(positions=Sweep("random", block)))
    assert not kernel.leaves_invariant
    matrix = sweep_matrix(kernel, engine, states)
    for energy in (Raw(), Norm()):
        assert invariance_error(matrix, distribution(model, energy, states)) > 1e-3


def test_the_counterexample_in_numbers():
    """Odds ratios 9801 and 1 fit no joint; Gibbs then goes wherever its order leads it."""
    model = MODELS["counterexample"]
    engine, states = Scorer(model), all_states(model, 2)
    odds = model.scores[:, 0, 0] + model.scores[:, 1, 1]
    odds = (odds - model.scores[:, 0, 1] - model.scores[:, 1, 0]).exp()
    assert odds.tolist() == pytest.approx([9801, 1])
    target = distribution(model, Norm(), states)
    assert target.tolist() == pytest.approx([0.495, 0.005, 0.005, 0.495])

    forward = sweep_matrix(Gibbs(Site(positions=Sweep("left-to-right"))), engine, states)
    assert stationary(forward).tolist() == pytest.approx([0.25] * 4)
    error = invariance_error(forward, target)
    exact = sweep_matrix(Metropolis(Norm(), Site(positions=Sweep("left-to-right"))), engine, states)
    assert error == pytest.approx(0.245)
    assert invariance_error(exact, target) < TOLERANCE


def test_a_truncated_proposal_can_be_stuck_and_epsilon_frees_it():
    model = MODELS["table"]
    engine, states = Scorer(model), all_states(model, 3)
    stuck = sweep_matrix(Metropolis(Raw(), Site(MaskedConditional(top_k=1))), engine, states)
    free = sweep_matrix(
        Metropolis(Raw(), Site(MaskedConditional(top_k=1, epsilon=0.1))), engine, states
    )
    target = distribution(model, Raw(), states)
    assert invariance_error(stuck, target) < TOLERANCE
    assert (torch.linalg.matrix_power(stuck, 200) == 0).any()
    assert (torch.linalg.matrix_power(free, 200) > 0).all()
    assert not MaskedConditional(top_k=1).reaches_everything
    assert MaskedConditional(top_k=1, epsilon=0.1).reaches_everything


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
    start = Chains.at(states, free=masked.expand(states.shape))
    start = replace(start, chain=torch.arange(len(states)))
    positions = Sweep("left-to-right", int(masked.sum()))
    kernel, rng = replace(kernel, move=replace(kernel.move, positions=positions)), DecidesAt(0)
    start = kernel.begin(kernel.init(start, Scorer(model)), rng)
    rng = replace(rng, number=number)
    return states, *kernel.step(start, torch.arange(len(states)), Scorer(model), rng)


@pytest.mark.parametrize("masked", MASKS)
def test_acceptance_turns_exactly_at_its_probability(masked):
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
    state = kernel.begin(replace(Chains.at(states), confidence=sure), CounterRng(0))
    rows = torch.arange(len(states))
    after, _ = kernel.at(2, None, None).step(state, rows, engine, CounterRng(0))
    target = distribution(model, Raw(), states)
    index = {tuple(tokens): i for i, tokens in enumerate(states.tolist())}
    moved = torch.zeros_like(target)
    for chance, tokens in zip(target, after.tokens.tolist(), strict=True):
        moved[index[tuple(tokens)]] += chance
    assert (moved - target).abs().max() > 1e-2


def test_a_current_token_outside_the_kept_set_makes_the_reverse_impossible():
    kernel = Metropolis(Raw(), Site(MaskedConditional(top_k=1)))
    states, after, info = _step(kernel, MASKS[0], 0.0)
    outside = info.proposal.log_q_reverse == -torch.inf
    assert outside.any()
    assert (info.log_acceptance[outside] == -torch.inf).all()
    assert not info.accepted[outside].any()
    assert torch.equal(after.tokens[outside], states[outside])


def _mixed(model, lengths=(7, 5, 7, 4, 6)) -> Chains:
    state = random_state(model, len(lengths), max(lengths))
    sizes = torch.tensor(lengths)
    inside = torch.arange(max(lengths)) < sizes[:, None]
    tokens = state.tokens.masked_fill(~inside, model.mask_id)
    return replace(state, lengths=sizes, free=inside, tokens=tokens)


@pytest.mark.parametrize("energy", [Raw(), Norm(), Raw() + 0.5 * Norm()])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_kept_energies_and_vectors_equal_fresh_ones_after_every_step(energy, block):
    model = tiny_bert("red green blue white")
    engine, draws = Scorer(model), CounterRng(5)
    kernel = Metropolis(energy, Site(positions=Sweep(block=block)))
    state = kernel.init(_mixed(model), engine)
    for _ in range(2):
        for _, after, _ in epoch(kernel, state, engine, draws):
            state = after
            fresh = engine.cache(state.sequences)
            assert torch.allclose(state.pass_cache.hidden, fresh.hidden, atol=1e-10)
            assert torch.allclose(state.pass_cache.logit, fresh.logit, atol=1e-10)
            expected = energy(model, replace(state.sequences, pass_cache=fresh))
            assert torch.allclose(state.energy, expected, atol=1e-10)


def test_passes_of_a_single_site_step():
    """None where nothing changes, T − 1 where one token does; proposing costs none."""
    model = tiny_bert("red green blue")
    engine, draws = Scorer(model), CounterRng(5)
    kernel = Metropolis(Norm(), delayed=DelayedAcceptance(0))
    state = kernel.init(_mixed(model), engine)
    before = engine.passes
    seen = set()
    for _ in range(3):
        for _, after, info in epoch(kernel, state, engine, draws):
            state = after
            lengths = state.lengths[info.proposal.rows]
            expected = torch.where(info.proposal.novel, lengths - 1, 0)
            assert torch.equal(info.passes, expected)
            assert engine.passes - before == int(expected.sum())
            before = engine.passes
            seen |= set(info.proposal.novel.tolist())
    assert seen == {True, False}


def test_not_a_number_is_never_accepted():
    from maskov.random import accept

    ratio = torch.tensor([torch.nan, 0.0, -torch.inf, torch.inf], dtype=torch.float64)
    for draw in (0.0, 0.5, 1 - 2**-53):
        decided = accept(ratio, torch.full((4,), draw, dtype=torch.float64))
        assert decided.tolist() == [False, True, False, True]
