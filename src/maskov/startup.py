"""Ctrl-C while the command `maskov` is still importing: one sentence instead of a traceback.

Importing takes seconds, most of them PyTorch's, and a traceback out of its files helps nobody. The
package imports this module first, and this one imports little. Programs that import maskov are left
alone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

# What a shell reports for a process that SIGINT ended.
INTERRUPTED = 128 + signal.SIGINT


def is_command(words: list[str]) -> bool:
    """Whether a process with these words is the command: `maskov` or `python -m maskov`."""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-X", "-W"):
            next(rest, None)
        elif word == "-m":
            return next(rest, "") == "maskov"
        elif word == "-c" or not word.startswith("-"):
            return os.path.basename(word) == "maskov"
    return False


def _end(number: int, frame: FrameType | None) -> None:
    # Nothing was begun that would have to be tidied up, and raising here would end up in the
    # handlers of whatever is being imported.
    os.write(2, b"maskov: stopped\n")
    os._exit(INTERRUPTED)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    is_command(sys.orig_argv)
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _end)
