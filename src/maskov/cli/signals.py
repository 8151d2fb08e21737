"""Ctrl-C and SIGTERM end a run at its next batch, with everything saved."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Remembers that somebody asked to stop, and how."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Return the code a shell gives to a process that this signal ended."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Note signals instead of dying of them; a second Ctrl-C stops at once."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
