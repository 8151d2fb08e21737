"""Commands compute with one thread on a CPU.

Threads that wait for each other spin. Beside another busy process they wait most of the time, and a
command with a thread for each core then takes many times as long as with one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def one_thread(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command compute with one thread; `--threads` of a run still sets its own number."""

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
