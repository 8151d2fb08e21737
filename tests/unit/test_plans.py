"""Which parts of an energy a test knows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.energies import Energy, Norm
from maskov.energies.distances import Edit
from maskov.energies.stages import DelayedAcceptance, TestPlan
from maskov.energies.words import Contains


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
    plan = TestPlan(Norm() + 3 * Edit() + 8 * Contains("river"), DelayedAcceptance(2))
    assert [(stage.nearest, stage.levels) for stage in plan.stages] == [
        (0, (1, 1)),
        (2, (1, 1)),
        (None, (1, 1)),
    ]


def test_an_approximation_of_an_expert_has_a_test_of_its_own():
    plan = TestPlan(Norm() + 3 * Edit() + Costly(), DelayedAcceptance(0))
    assert [stage.levels for stage in plan.stages] == [(1, 0), (1, 1), (1, 2), (1, 2)]
