"""The time until the command answers.

The median of several processes, each from its beginning to its end, for what needs no model.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = ("--version", "--help", "sample --help")
_TIMES = 5


def seconds_to_answer(times: int = _TIMES) -> dict[str, float]:
    """Return the median seconds of each command."""
    return {words: statistics.median(_seconds(words) for _ in range(times)) for words in COMMANDS}


def _seconds(words: str) -> float:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "maskov", *words.split()], stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - begun
