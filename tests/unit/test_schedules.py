"""Schedules: linear with a floor, forced acceptance, burn-in, and what they say of the target."""

import json
from dataclasses import asdict

import pytest

from maskov import Gibbs, LinearSchedule, MaskedConditional, Metropolis, Norm, Raw, Schedule, sample
from maskov.config import from_json
from maskov.kernels.base import kernel_at
from maskov.kernels.registry import kernel_from_data, to_data
from maskov.moves import Site
from maskov.runs.manifest import leaves_invariant
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
    """Not as the nearest built-in one: it alone knows when to accept."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class NeverMoves(Metropolis):
        def log_ratio(self, chains, proposal, fall):
            return super().log_ratio(chains, proposal, fall).fill_(-float("inf"))

    run = sample(random_table(), NeverMoves(Raw()), Schedule(epochs=2), length=3)
    assert run.traces["novel"].sum() == 0 < run.traces["proposed_novel"].sum()
    assert run.summary().kernel == "NeverMoves"


def test_mask_predict_masks_all_then_ever_fewer_of_the_least_sure():
    from dataclasses import replace

    import torch

    from maskov import mask_predict
    from maskov.random import CounterRng
    from small import random_state

    model, kernel, draws = random_table(), mask_predict(4), CounterRng(0)
    state = random_state(model, 1, 8)
    sure = torch.tensor([[0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4]], dtype=torch.float64)
    rows = torch.tensor([0])
    masked = []
    for iteration in range(4):
        positions = kernel.at(iteration, None, None).move.positions
        begun = positions.begin(replace(state, confidence=sure), draws)
        masked.append(positions.masked(begun, rows, draws)[0].nonzero().flatten().tolist())
    assert masked == [list(range(8)), [1, 3, 4, 5, 6, 7], [1, 3, 5, 7], [1, 3]]
