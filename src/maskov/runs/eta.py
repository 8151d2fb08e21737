"""How fast a run goes and how long it will still take, for whoever watches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Pace:
    """Passes per second and the time left, from what was seen since the run began or went on."""

    def __init__(self, epochs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._epochs = epochs
        self._clock = clock
        self._begun = clock()
        self._first: int | None = None
        self._reached = 0.0

    def begin(self) -> None:
        """Start counting now."""
        self._begun = self._clock()

    def reached(self, done: float) -> float:
        """Return the most epochs that were ever done: some chains may be behind others."""
        self._reached = min(max(self._reached, done), self._epochs)
        return self._reached

    def passes_per_second(self, passes: int) -> float:
        """Return the passes of each second so far."""
        return passes / max(self._clock() - self._begun, 1e-9)

    def seconds_left(self, done: float) -> float | None:
        """Return the time that the other epochs will take; none before one was seen from its start.

        `done` counts epochs, half an epoch where one is under way. A run that goes on has some
        behind it that took no time here.
        """
        if self._first is None:
            self._first = math.ceil(done) - 1  # where the epoch began that was heard of first
        seen = done - self._first
        if seen < 1:
            return None
        return (self._clock() - self._begun) * max(self._epochs - done, 0.0) / seen


def in_words(seconds: float) -> str:
    """Say a time as people do, no finer than it is known."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes:02d} min"
