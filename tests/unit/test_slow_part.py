"""The part of the slow tests that CI runs: a day decides it, and ten days run them all."""

from __future__ import annotations

import pytest

from slow_part import PARTS, chosen, part_and_cycle


@pytest.mark.parametrize("count", [0, 3, 10, 71])
def test_ten_days_run_every_test_once(count):
    days = [part_and_cycle(day, None) for day in range(20_400, 20_400 + PARTS)]
    run = [item for part, cycle in days for item in chosen(range(count), part, cycle)]
    assert sorted(run) == list(range(count))


def test_the_tests_of_a_part_take_turns_to_be_the_first():
    firsts = {chosen(range(71), 3, cycle)[0] for cycle in range(7)}
    assert firsts == set(range(3, 71, PARTS))


def test_a_part_can_be_asked_for():
    assert part_and_cycle(20_407, None) == (7, 2040)
    assert part_and_cycle(20_407, "3") == (3, 2040)
    for wrong in ("10", "-1", "x"):
        with pytest.raises(SystemExit, match="SLOW_PART is a number from 0 to 9"):
            part_and_cycle(20_407, wrong)
