"""Which parts of an energy a test knows."""

from dataclasses import dataclass

import pytest
import torch

from maskov import InputError, Metropolis, Raw
from maskov.energies import Energy, Norm
from maskov.energies.counting import Contains, Edit
from maskov.energies.stages import AcceptanceStages, DelayedAcceptance


@dataclass(frozen=True)
class Costly(Energy):
    """An expert with a cheap approximation."""

    cost: float = 1.0

    def __call__(self, model, sequences):
        return torch.zeros(len(sequences.lengths), dtype=torch.float64)

    def stages(self):
        return (Costly(0.5), self)

    def __str__(self):
        return f"costly({self.cost})"


def test_experts_that_follow_each_other_are_tested_together():
    """A classifier wants a change that a distance does not: alone, the distance would reject it."""
    plan = AcceptanceStages(Norm() + 3 * Edit() + 8 * Contains("river"), DelayedAcceptance(2))
    assert [(stage.nearest, stage.levels) for stage in plan.stages] == [
        (0, (1, 1)),
        (2, (1, 1)),
        (None, (1, 1)),
    ]


def test_an_approximation_of_an_expert_has_a_test_of_its_own():
    plan = AcceptanceStages(Norm() + 3 * Edit() + Costly(), DelayedAcceptance(0))
    assert [stage.levels for stage in plan.stages] == [(1, 0), (1, 1), (1, 2), (1, 2)]


@pytest.mark.parametrize("nearest", [(2, 1), (1, 1), (0, 2), -1])
def test_early_tests_know_more_and_more(nearest):
    with pytest.raises(InputError, match="more and more"):
        DelayedAcceptance(nearest)


def test_the_usual_early_tests_are_those_that_suit_the_energy():
    found = [Metropolis(one).delayed.early for one in (Raw(), Norm() + Edit(), Norm(groups=2))]
    assert found == [(2,), (2,), ()]
    assert Metropolis(Edit()).delayed.early == ()
    with pytest.raises(InputError, match="no masked passes"):
        Metropolis(Edit(), delayed=DelayedAcceptance(2))
