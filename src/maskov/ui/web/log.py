"""A server's messages: few, and short when a client is to blame."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable

MOST_MESSAGES, _PERIOD = 10, 60.0
_LOGGERS = ("uvicorn.error", "asyncio")


class BriefLog(logging.Handler):
    """Writes at most MOST_MESSAGES a minute to standard error, each once, and counts the others.

    Only an error of the program has its traceback. A connection or file that fails (OSError) has
    one line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._began, self._left_out = clock(), 0
        self._written: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, or count it."""
        try:
            now = self._clock()
            if now - self._began >= _PERIOD:
                self._say_left_out()
                self._began, self._written = now, set()
            text = _text(record)
            if text in self._written or len(self._written) >= MOST_MESSAGES:
                self._left_out += 1
                return
            self._written.add(text)
            self._write(text)
        except Exception:
            self.handleError(record)

    def _say_left_out(self) -> None:
        if self._left_out:
            self._write(f"{self._left_out} more messages within {_PERIOD:.0f} s were left out")
            self._left_out = 0

    def _write(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _text(record: logging.LogRecord) -> str:
    first = record.getMessage().strip().partition("\n")[0]
    error = record.exc_info[1] if record.exc_info else None
    text = f"{record.levelname.lower()}: {first}"
    if error is None:
        return text
    if isinstance(error, OSError):
        return f"{text} ({error.strerror or type(error).__name__})"
    return "\n".join([text, *"".join(traceback.format_exception(error)).splitlines()])


def log_briefly() -> None:
    """Send the messages of the server to one BriefLog and to nothing else."""
    handler = BriefLog()
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.WARNING)
        logger.propagate = False
