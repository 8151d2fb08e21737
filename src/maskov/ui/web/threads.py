"""Threads for one kind of request, so that requests of that kind cannot keep all others waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

Result = TypeVar("Result")


class RequestThreads:
    """Runs functions in at most `most` threads at once; the others wait without a thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limiter: CapacityLimiter | None = None

    async def run(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns."""
        if self._limiter is None:  # it belongs to the event loop that is running now
            self._limiter = CapacityLimiter(self._most)
        return await to_thread.run_sync(function, limiter=self._limiter)
