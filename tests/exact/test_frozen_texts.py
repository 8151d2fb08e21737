"""Frozen tokens of templates and texts: the law of the rest, given these, is left invariant."""

import itertools
from dataclasses import replace

import pytest
import torch

from maskov import DelayedAcceptance, Metropolis, Mixture, Norm, Raw, Sweep
from maskov.config import Inputs
from maskov.exact import (
    all_states,
    balance_error,
    distribution,
    invariance_error,
)
from maskov.models.scorer import Scorer
from maskov.moves import Resize, Site, Span
from maskov.runs.preparation import layout_of
from maskov.starts import Layout
from maskov.testing import step_matrix
from maskov.types import Chains
from small import random_table, tiny_bert

MOVES = [Site(), Site(positions=Sweep(block=2)), Span(), Span(sizes=(1, 2))]


@pytest.mark.parametrize("move", MOVES, ids=str)
@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
def test_the_law_of_the_rest_is_left_invariant(move, energy):
    model = random_table(length=4, size=2)
    layout = Layout.of_texts(model, ["a b a b"], 1, [[1]])
    states = all_states(model, 4)
    fits = states[states[:, 1] == layout.starts[0].tokens[1]]
    joint = distribution(model, energy, states)
    given = joint[states[:, 1] == 1] / joint[states[:, 1] == 1].sum()
    chains = Chains.at(fits, free=torch.tensor(layout.starts[0].free).expand(fits.shape))
    kernel = Metropolis(energy, move, delayed=DelayedAcceptance(1))
    moved = torch.zeros(4, dtype=torch.bool)
    for seed, number in itertools.product(range(3), range(int(kernel.steps(chains)[0]))):
        matrix = step_matrix(kernel, Scorer(model), chains, number, seed)
        assert balance_error(matrix, given) < 1e-10
        assert invariance_error(matrix, given) < 1e-10
        for start, end in (matrix > 0).nonzero().tolist():
            moved |= fits[start] != fits[end]
    assert moved.tolist() == layout.starts[0].free


def _every_state(layout: Layout, model, tokens: list[int]) -> Chains:
    """Return chains at everything that the only chain of a layout may become."""
    first = layout.chains(model, range(1), layout.width)
    (start,) = layout.starts
    held = [token for token, free in zip(start.tokens, start.free, strict=True) if not free]
    found = []
    for sizes in itertools.product(*(range(a, b + 1) for a, b in start.bounds)):
        free, region = start.at_sizes(sizes)
        for chosen in itertools.product(tokens, repeat=sum(sizes)):
            rest, fixed = iter(chosen), iter(held)
            row = [next(rest) if one else next(fixed) for one in free]
            space = layout.width - len(row)
            found.append(
                (row + [model.mask_id] * space, len(row), free + [False] * space,
                 region + [-1] * space)
            )  # fmt: skip
    ids, lengths, free, region = (torch.tensor(column) for column in zip(*found, strict=True))
    whole = first.rows(torch.zeros(len(found), dtype=torch.long))
    return replace(whole, tokens=ids, lengths=lengths, free=free, region=region)


@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
def test_stretches_that_change_their_lengths(energy):
    """The frozen token may not be drawn, so that a sequence says which token is the frozen one."""
    model = tiny_bert("red green blue")
    inputs = Inputs(texts=("red blue green",), sampled=True, frozen=((1,),))
    layout = layout_of(model, inputs, 1, 0)
    (start,) = layout.starts
    assert start.bounds == [(1, 2), (1, 2)]
    assert start.region == [0, -1, 1]
    red, blue, green = start.tokens
    model.forbidden[blue] = True
    chains = _every_state(layout, model, [red, green])
    assert len(chains.tokens) == 36
    given = distribution(model, energy, chains.tokens, 1.0, chains.lengths)
    moves = (Site(), Span(sizes=(2,)), Resize(), Resize(pairs=((1, 2),)))
    kernels = [Metropolis(energy, move, delayed=DelayedAcceptance(1)) for move in moves]
    for kernel in (*kernels[2:], Mixture(tuple(kernels))):
        reached = torch.zeros(36, dtype=torch.bool)
        for seed in range(3):
            matrix = step_matrix(kernel, Scorer(model), chains, 0, seed)
            assert (matrix.sum(1) - 1).abs().max() < 1e-10
            assert invariance_error(matrix, given) < 1e-10
            reached |= (matrix[chains.lengths == 3] > 0).any(0)
        assert {2, 3, 4, 5} & set(chains.lengths[reached].tolist()) > {3}
