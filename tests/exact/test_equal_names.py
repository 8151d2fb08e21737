"""Parts that have one name are two parts: of a sum, of a mixture, of what a run keeps."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch

import maskov
from maskov import DelayedAcceptance, Metropolis, Mixture, Norm, Raw, Site, Span
from maskov.energies import Energy, as_energy, parse_energy
from maskov.energies.counting import Length
from maskov.exact import all_states, distribution
from maskov.kernels.base import counted
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.scoring import score_texts
from maskov.testing import check_energy, check_kernel, invariance_error, random_table, step_matrix
from maskov.types import Chains

TABLE = random_table()
PLAIN = DelayedAcceptance(0)


class Has:
    """An energy of texts that says nothing of how it was made."""

    def __init__(self, word):
        self.word = word

    def __call__(self, texts):
        return [float(self.word in text.split()) for text in texts]


class Staged(Energy):
    """An energy with an early stage that has the name of another one's."""

    cost = 30.0

    def __init__(self, word):
        self.word = word

    def __call__(self, model, sequences):
        return as_energy(Has(self.word))(model, sequences)

    def stages(self):
        return (as_energy(Has(self.word)), self)

    def __str__(self):
        return "norm"


def norm(texts):
    return [float("b" in text.split()) for text in texts]


def _elsewhere():
    """Return an instance of a class of the same name from another module."""
    kind = type("Has", (Has,), {"__module__": "other"})
    return kind("b")


PAIRS = {
    "two instances": (Has("a"), Has("b")),
    "two modules": (Has("a"), _elsewhere()),
    "two lambdas": (lambda t: [float("a" in x.split()) for x in t], lambda t: norm(t)),
    "with stages": (Staged("a"), Staged("b")),
    "the name of a built-in": (Staged("a"), norm),
}


def _expected(model, states):
    """Return the law of norm + 3·[has a] + 3·[has b], without any sum of ours."""
    tokens = states.tolist()
    a, b = (model.token_strings(range(model.vocabulary_size)).index(word) for word in "ab")
    extra = torch.tensor([3.0 * ((a in row) + (b in row)) for row in tokens]).double()
    plain = distribution(model, Norm(), states).log()
    return (plain - extra).softmax(0)


@pytest.mark.parametrize("pair", PAIRS)
def test_both_parts_of_a_sum_count(pair):
    one, other = map(as_energy, PAIRS[pair])
    energy, states = Norm() + 3 * one + 3 * other, all_states(TABLE, 3)
    expected = _expected(TABLE, states)
    assert torch.allclose(distribution(TABLE, energy, states), expected, atol=1e-12)
    for kernel in (Metropolis(energy, delayed=PLAIN), Metropolis(energy, Span(sizes=(2,)))):
        matrix = step_matrix(kernel, Scorer(TABLE), states)
        assert invariance_error(matrix, expected) < 1e-10
    check_energy(energy, TABLE)


def test_runs_keep_and_show_each_part():
    energy = Raw() + 2 * as_energy(Has("a")) + -1 * as_energy(norm) + 5 * as_energy(Has("b"))
    run = maskov.sample(TABLE, energy=energy, chains=3, epochs=2, length=3, burn_in=0)
    assert run.manifest.experts == ("Has", "test_equal_names:norm", "Has (2)")
    assert [one.weight for one in run.diagnose().experts] == [2, -1, 5]
    for sample in run.samples:
        words = sample.text.split()
        kept = [float("a" in words), float("b" in words), float("b" in words)]
        assert list(sample.energies.values())[1:] == kept
        whole = sample.energy_raw + 2 * kept[0] - kept[1] + 5 * kept[2]
        assert sample.energies["target"] == pytest.approx(whole)
        (scored,) = score_texts(TABLE, [sample.text], energy)
        assert scored.energy == pytest.approx(whole)
        assert list(scored.experts) == ["Has", "test_equal_names:norm", "Has (2)"]


def _kernels(one, other):
    return Metropolis(one, Site(), 0.7, PLAIN), Metropolis(other, Span(sizes=(2,)), 0.7, PLAIN)


@pytest.mark.parametrize(
    ("mixture", "shared"),
    [
        (Mixture(_kernels(Raw(), Raw())), True),
        (Mixture(_kernels(2 * Norm() + Length(3), 2 * Norm() + Length(3))), True),
        (Mixture(_kernels(Norm() + Length(3), 2 * Norm() + Length(3))), False),
        (Mixture(_kernels(Raw() + as_energy(Has("a")), Raw() + as_energy(Has("b")))), False),
        (Mixture((Mixture((Metropolis(Raw(), Site(), 0.5, PLAIN),)), Metropolis(Raw()))), False),
        (Mixture((Mixture(_kernels(Raw(), Raw())), Metropolis(Raw(), Site(), 0.7))), True),
    ],
    ids=str,
)
def test_mixtures_compare_targets_as_objects(mixture, shared):
    assert mixture.leaves_invariant == shared
    assert (mixture.energy is not None) == shared
    if shared:
        assert mixture.target.temperature == 0.7
        check_kernel(mixture, TABLE, reversible=False)
    else:
        with pytest.raises(AssertionError, match="does not claim"):
            check_kernel(mixture, TABLE)


@dataclass(frozen=True)
class Marks(Metropolis):
    """A kernel that only says that it was called."""

    called: object = None

    def step(self, chains, rows, scorer, rng):
        self.called.count += len(rows)
        return counted(chains, rows), super().step(chains, rows, scorer, rng)[1]


@pytest.mark.parametrize("depth", [1, 2])
def test_nested_mixtures_draw_their_parts_independently(depth):
    counts = [SimpleNamespace(count=0) for _ in range(depth + 2)]
    kernel = Marks(Raw(), called=counts[0])
    for count in counts[1:]:
        kernel = Mixture((kernel, Marks(Raw(), called=count)))
    scorer, chains = Scorer(TABLE), Chains.at(all_states(TABLE, 3)[:1].repeat(1000, 1))
    chains = kernel.init(replace(chains, chain=torch.arange(1000)), scorer)
    kernel.step(chains, torch.arange(1000), scorer, CounterRng(0))
    shares = [2.0 ** -(depth + 1), *(2.0 ** -(depth + 1 - n) for n in range(depth + 1))]
    for count, share in zip(counts, shares, strict=True):
        assert abs(count.count - 1000 * share) < 5 * (1000 * share) ** 0.5


def test_a_huge_constant_does_not_cancel_the_energy():
    states = all_states(TABLE, 3)
    kernel = Metropolis(parse_energy("norm+1e17*length(9)"), delayed=PLAIN)
    matrix = step_matrix(kernel, Scorer(TABLE), states)
    assert invariance_error(matrix, distribution(TABLE, Norm(), states)) < 1e-10


def test_another_weight_costs_no_evaluation():
    calls = []

    def expert(texts):
        calls.append(len(texts))
        return [float("a" in text.split()) for text in texts]

    part, scorer = as_energy(expert), Scorer(TABLE)
    chains = Metropolis(Norm() + part).init(Chains.at(all_states(TABLE, 3)), scorer)
    spent = scorer.passes
    moved = Metropolis(0.3 * Norm() + 2 * part).init(chains, scorer)
    assert (len(calls), scorer.passes) == (1, spent)
    expected = 0.3 * chains.part_values.values[:, 0] + 2 * chains.part_values.values[:, 1]
    assert torch.allclose(moved.energy, expected)
