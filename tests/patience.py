"""Waiting for what must come, on a machine that may be busy."""

import time
from collections.abc import Callable
from typing import Any

# Seconds that only what hangs takes.
PATIENCE = 300


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.1)
