"""Energies of grouped positions: their definition, their passes, and exact kernels with them."""

from dataclasses import replace

import pytest
import torch

from maskov import (
    DelayedAcceptance,
    InputError,
    MaskedConditional,
    Metropolis,
    Norm,
    Raw,
    Site,
    Sweep,
)
from maskov.energies import TextEnergy, parse_energy
from maskov.exact import (
    all_states,
)
from maskov.execution.recorded import rounds_of
from maskov.execution.window_rounds import WindowRounds
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves import Span
from maskov.random import CounterRng
from maskov.testing import check_energy, check_kernel
from maskov.types import Chains, Sequences
from small import epoch, random_state, random_table, tiny_bert

TABLE = random_table()
LONGER = random_table(length=4, size=2)
TINY = tiny_bert()
SMALL = {3: random_table(size=2, seed=1), 4: LONGER}
MODELS = {"table": (TABLE, 3), "longer": (LONGER, 4), "bert": (TINY, 3)}
MOVES = {
    "site": Site(),
    "truncated": Site(MaskedConditional(top_k=1, epsilon=0.1)),
    "block": Site(MaskedConditional(0.8), Sweep("left-to-right", 2)),
    "spans": Span(sizes=(2, 3)),
    "truncated spans": Span(MaskedConditional(0.7, top_k=1, epsilon=0.05), sizes=(1, 2)),
}


def by_hand(model, states, groups, normalised):
    """Compute the energy by its definition: one sequence and one group at a time."""
    energies = []
    for state in states.tolist():
        total = 0.0
        for group in range(groups):
            places = [place for place in range(len(state)) if place % groups == group]
            if not places:
                continue
            masked = torch.zeros(1, len(state), dtype=torch.bool)
            masked[0, places] = True
            query = Queries(torch.tensor([state]), torch.tensor([len(state)]), masked)
            for place, scores in zip(places, model.logits(model.hidden(query)), strict=True):
                total -= float(scores[state[place]])
                total += float(scores.logsumexp(0)) if normalised else 0.0
        energies.append(total)
    return torch.tensor(energies, dtype=torch.float64)


def energies_of(model, energy, tokens, lengths=None):
    """Compute the energy as the package does."""
    lengths = torch.full((len(tokens),), tokens.shape[1]) if lengths is None else lengths
    scorer = Scorer(model)
    given = Sequences(tokens, lengths)
    sites = scorer.cache(given, energy.needs_normaliser, groups=energy.groups)
    return energy(model, replace(given, pass_cache=sites)), scorer.passes


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", [Raw, Norm])
@pytest.mark.parametrize("name", MODELS)
def test_the_energy_is_its_definition(name, kind, groups):
    model, length = MODELS[name]
    states = all_states(model, length)
    found, passes = energies_of(model, kind(groups=groups), states)
    assert torch.allclose(found, by_hand(model, states, groups, kind is Norm), atol=1e-12)
    assert passes == len(states) * min(groups, length)


def test_groups_are_counted_in_each_sequence_whatever_its_padding():
    tokens, lengths = random_state(TINY, 4, 7).tokens, torch.tensor([7, 2, 5, 3])
    found, passes = energies_of(TINY, Norm(groups=3), tokens, lengths)
    alone = [
        energies_of(TINY, Norm(groups=3), tokens[row : row + 1, :size])[0]
        for row, size in enumerate(lengths.tolist())
    ]
    assert torch.allclose(found, torch.cat(alone), atol=1e-12)
    assert passes == 3 + 2 + 3 + 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raw(groups=0)", "1 group of positions or more, not 0"),
        ("norm(groups=two)", "must be a whole number"),
        ("raw(4)", "is not an energy"),
        ("raw + norm(groups=4)", "'raw' and 'norm\\(groups=4\\)' mask different groups"),
        ("raw(groups=2) + 2*raw(groups=4)", "cannot be in one sum"),
    ],
)
def test_bad_groups_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_energy(text)


def letters(texts):
    """Count the a's."""
    return [0.7 * text.count("a") for text in texts]


@pytest.mark.parametrize(
    ("energy", "name"),
    [
        (Raw(groups=1), "table"),
        (0.3 * Raw(groups=2) + Norm(groups=2), "longer"),
        (Norm(groups=4), "longer"),
        (Raw(groups=2) + TextEnergy(letters), "table"),
        (Norm(groups=2), "bert"),
    ],
    ids=str,
)
def test_cache_and_stages(energy, name):
    check_energy(energy, *MODELS[name])


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_exact_with_every_move(groups, move):
    for kind, length in ((Raw, 3), (Norm, 4)):
        kernel = Metropolis(kind(groups=groups), MOVES[move], 0.8)
        assert rounds_of(kernel) is WindowRounds
        check_kernel(kernel, SMALL[length], length, seeds=2 if "span" in move else 1)


@pytest.mark.parametrize("nearest", [1, 2])
@pytest.mark.parametrize("move", ["site", "spans"])
def test_groups_near_the_change_may_be_tested_first(move, nearest):
    kernel = Metropolis(Norm(groups=3), MOVES[move], delayed=DelayedAcceptance(nearest))
    check_kernel(kernel, LONGER, 4)


def test_an_energy_without_passes_drops_those_of_another_kernel():
    text = TextEnergy(letters)
    both = Metropolis(Raw() + text).init(Chains.at(all_states(TABLE, 3)), Scorer(TABLE))
    assert Metropolis(text).init(both, Scorer(TABLE)).pass_cache is None


@pytest.mark.parametrize("kind", [Raw, Norm])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_novel_site_costs_one_pass_less_than_there_are_groups(groups, kind):
    kernel, scorer = Metropolis(kind(groups=groups)), Scorer(TINY)
    state = kernel.init(random_state(TINY, 6, 9), scorer)
    assert scorer.passes == 6 * groups
    novel, before = 0, scorer.passes
    for _, _, info in epoch(kernel, state, scorer, CounterRng(3)):
        expected = torch.where(info.proposal.novel, groups - 1, 0)
        assert torch.equal(info.passes, expected)
        novel += int(info.proposal.novel.sum())
    assert novel > 10
    assert scorer.passes - before == novel * (groups - 1)
