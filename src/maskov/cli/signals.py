"""How commands run: Ctrl-C and SIGTERM stop a run after the current batch; one thread on a CPU."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import ParamSpec

import typer

from maskov.cli.output import say
from maskov.startup import INTERRUPTED, imported

P = ParamSpec("P")


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """Let Ctrl-C end a command with one sentence, which the command's framework does not say.

    What a command computes with is imported here, after its options are read and its help is shown.
    """

    @wraps(command)
    def interrupted(*arguments: P.args, **options: P.kwargs) -> None:
        import_module("maskov.public")
        imported()
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("maskov: stopped")
            raise typer.Exit(INTERRUPTED) from None

    return interrupted


class Stop:
    """Whether a signal to stop was received, and which."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Return the exit code of a shell for a process ended by this signal."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Record signals instead of ending the process; a second Ctrl-C stops at once."""
    stop = Stop()

    def record(number: int, frame: FrameType | None) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def one_thread(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command compute with one thread; `--threads` of a run still sets its own number.

    Threads that wait for each other spin. Next to another busy process they wait most of the time,
    and a command with a thread for each core then takes many times as long as with one.
    """

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            command(*arguments, **options)
        finally:
            torch.set_num_threads(before)

    return run
