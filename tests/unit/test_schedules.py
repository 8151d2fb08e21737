"""Schedules: linear with a floor, forced acceptance, burn-in, and what they say of the target."""

import json
import os
from dataclasses import asdict

import pytest
import torch

from maskov import (
    DelayedAcceptance,
    Gibbs,
    InputError,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Norm,
    Raw,
    Schedule,
    Sweep,
    sample,
)
from maskov.config import from_json
from maskov.energies.counting import Edit
from maskov.kernels.base import kernel_at
from maskov.kernels.registry import kernel_from_data, to_data
from maskov.moves import Site
from maskov.runs.manifest import leaves_invariant
from maskov.types import inside
from small import random_table, tiny_bert


def test_a_linear_value_falls_to_its_floor_and_stays():
    value = LinearSchedule(1.0, 0.3, 0.25)
    assert [round(value.at(epoch), 10) for epoch in range(5)] == [1.0, 0.7, 0.4, 0.25, 0.25]
    assert value.settled_at() == pytest.approx(2.5)


def test_the_kernel_of_each_epoch_follows_the_schedule():
    schedule = Schedule(
        epochs=6,
        target_temperature=LinearSchedule(1.0, 0.25, 0.5),
        block=LinearSchedule(4.0, 1.5, 1.0),
        force_accept=2,
    )
    kernels = [kernel_at(Metropolis(Raw()), schedule, epoch) for epoch in range(6)]
    assert [kernel.move.positions.block for kernel in kernels] == [4, 2, 1, 1, 1, 1]
    assert [type(kernel) for kernel in kernels] == [Gibbs, Gibbs, *[Metropolis] * 4]
    assert [kernel.target_temperature for kernel in kernels[2:]] == [0.5] * 4


def test_forced_epochs_accept_everything_and_are_followed_by_real_decisions():
    model = tiny_bert("red green blue white")
    run = sample(model, Metropolis(Norm()), Schedule(epochs=4, force_accept=2), length=8, chains=6)
    accepted, steps = run.traces["accepted"].sum(1), run.traces["steps"].sum(1)
    assert (accepted[:2] == steps[:2]).all()
    assert (accepted[2:] < steps[2:]).all()
    # Forced steps need no energies: one pass each.
    assert (run.traces["passes"].sum(1)[:2] == steps[:2]).all()


@pytest.mark.parametrize(
    ("schedule", "fixed"),
    [
        (Schedule(epochs=5), True),
        (Schedule(epochs=5, target_temperature=LinearSchedule(1.0, 0.1, 0.5)), False),
        (Schedule(epochs=9, burn_in=6, target_temperature=LinearSchedule(1.0, 0.1, 0.5)), True),
        (Schedule(epochs=5, force_accept=1), False),
        (Schedule(epochs=5, force_accept=1, burn_in=1), True),
        # A block size that moves is chosen without looking at the chain: the target stays.
        (Schedule(epochs=5, block=LinearSchedule(3.0, 1.0, 1.0)), True),
    ],
)
def test_a_run_says_whether_its_kept_epochs_have_one_target(schedule, fixed):
    invariant, notes = leaves_invariant(Metropolis(Raw()), schedule)
    assert invariant is fixed
    moving_block = schedule.block is not None
    assert bool(notes) is (not fixed or moving_block)
    assert leaves_invariant(Gibbs(), schedule)[0] is False


def test_kernels_and_schedules_survive_being_written_down():
    kernel = Metropolis(0.5 * Raw() + Norm(), Site(MaskedConditional(0.8, 5, 0.9, 0.01)))
    assert kernel_from_data(json.loads(json.dumps(to_data(kernel)))) == kernel
    schedule = Schedule(10, 2, LinearSchedule(1.0, 0.1, 0.2), LinearSchedule(3.0, 1.0, 1.0), 1)
    assert from_json(Schedule, json.dumps(asdict(schedule))) == schedule


def test_a_kernel_made_elsewhere_is_run_as_it_is():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class NeverMoves(Metropolis):
        def log_ratio(self, chains, proposal, fall):
            return super().log_ratio(chains, proposal, fall).fill_(-float("inf"))

    run = sample(random_table(), NeverMoves(Raw()), Schedule(epochs=2), length=3)
    assert run.traces["novel"].sum() == 0 < run.traces["proposed_novel"].sum()
    assert run.summary().kernel == "NeverMoves"


@pytest.mark.parametrize("block", [1, 2])
def test_steps_without_a_way_back_are_counted_and_an_epsilon_leaves_none(block):
    model, counts = tiny_bert("red green blue white black"), []
    for epsilon in (0.0, 0.1):
        move = Site(MaskedConditional(top_p=0.6, epsilon=epsilon), Sweep(block=block))
        run = sample(model, Metropolis(Norm(), move), Schedule(epochs=4), chains=10, length=6)
        counts.append(int(run.traces["irreversible"].sum()))
        assert (run.traces["irreversible"] <= run.traces["steps"] - run.traces["accepted"]).all()
    assert counts[0] > 0 == counts[1]


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


@pytest.mark.skipif(not os.environ.get("CHECK_TYPES"), reason="CHECK_TYPES=1 checks types")
@pytest.mark.parametrize("wrong", [
    lambda: inside(torch.zeros(2), 3),  # a dtype
    lambda: inside(torch.zeros(2, 1, dtype=torch.long), 3),  # a shape
    lambda: Schedule(epochs="6"),  # the field of a dataclass
])  # fmt: skip
def test_wrong_types_are_found(wrong):
    """With `CHECK_TYPES=1`, which one job of every night sets."""
    with pytest.raises(TypeError):
        wrong()
