"""Run a tenth of the slow tests, another one each day, for about three minutes.

    python tests/slow_part.py

The day (in UTC) decides which tests these are and in which order, so that on one day every machine
runs the same, in ten days each test has its turn, and those for which there was no time come first
another time. `SLOW_PART=3` asks for one of the parts, 0 to 9; `SLOW_SECONDS=600` for more time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import pytest

PARTS = 10
SECONDS = 180.0
T = TypeVar("T")


def chosen(items: Sequence[T], part: int, cycle: int) -> list[T]:
    """Return every tenth item; which of them is first depends on the cycle."""
    own = list(items[part::PARTS])
    first = cycle % len(own) if own else 0
    return own[first:] + own[:first]


def part_and_cycle(day: int, asked: str | None) -> tuple[int, int]:
    """Return the part of a day, or the one asked for, and how often all parts were run before."""
    cycle, part = divmod(day, PARTS)
    if asked is None:
        return part, cycle
    if not asked.isdecimal() or int(asked) >= PARTS:
        raise SystemExit(f"SLOW_PART is a number from 0 to {PARTS - 1}, not '{asked}'.")
    return int(asked), cycle


class SlowPart:
    """A plugin of pytest that leaves one part of the tests, and skips those that come too late."""

    def __init__(self, part: int, cycle: int, seconds: float) -> None:
        self._part, self._cycle, self._seconds = part, cycle, seconds
        self._begun = time.monotonic()

    @pytest.hookimpl(trylast=True)  # after -m has left the slow ones
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]):
        """Keep one part, and print its tests."""
        ordered = sorted(items, key=lambda item: item.nodeid)
        kept = chosen(ordered, self._part, self._cycle)
        config.hook.pytest_deselected(items=[item for item in ordered if item not in kept])
        items[:] = kept
        self._begun = time.monotonic()
        print(f"part {self._part} of {PARTS} of the slow tests (SLOW_PART={self._part}):")
        for item in kept:
            print(f"  {item.nodeid}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin no test after the time is up."""
        if time.monotonic() - self._begun > self._seconds:
            pytest.skip(f"the {self._seconds:g} seconds of this part are over")


def main() -> int:
    """Run the part of today, or that of SLOW_PART."""
    day = int(datetime.now(UTC).timestamp()) // 86_400
    part, cycle = part_and_cycle(day, os.environ.get("SLOW_PART"))
    seconds = float(os.environ.get("SLOW_SECONDS", SECONDS))
    return int(pytest.main(["-m", "slow", "-rs"], plugins=[SlowPart(part, cycle, seconds)]))


if __name__ == "__main__":
    sys.exit(main())
