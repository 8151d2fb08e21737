"""What a chain keeps stays true, and costs no more passes than it must."""

from dataclasses import replace

import pytest
import torch

from maskov import DelayedAcceptance, Metropolis, Norm, Raw, Sweep
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from maskov.types import Chains
from small import epoch, random_state, tiny_bert


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


def test_passes_of_a_block_step():
    """One for the proposal; then T, or T − 1 where the block changed one token only."""
    model = tiny_bert("red green blue")
    engine, draws = Scorer(model), CounterRng(5)
    kernel = Metropolis(Raw(), Site(positions=Sweep(block=2)), delayed=DelayedAcceptance(0))
    state = kernel.init(_mixed(model, (6, 6, 6, 6, 6, 6, 6, 6)), engine)
    seen = set()
    for _ in range(3):
        for _, after, info in epoch(kernel, state, engine, draws):
            state = after
            changed = info.proposal.changed.sum(1)
            cost = {0: 0, 1: 5, 2: 6}
            assert info.passes.tolist() == [1 + cost[c] for c in changed.tolist()]
            seen |= set(changed.tolist())
    assert seen == {0, 1, 2}


def test_not_a_number_is_never_accepted():
    from maskov.random import accept

    ratio = torch.tensor([torch.nan, 0.0, -torch.inf, torch.inf], dtype=torch.float64)
    for draw in (0.0, 0.5, 1 - 2**-53):
        decided = accept(ratio, torch.full((4,), draw, dtype=torch.float64))
        assert decided.tolist() == [False, True, False, True]
