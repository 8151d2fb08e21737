"""The command `maskov`, or `python -m maskov`: Ctrl-C while it imports is one sentence.

Importing takes seconds, most of them PyTorch's, and a traceback out of its files helps nobody.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def _interrupted(number: int, frame: FrameType | None) -> None:
    importing = "torch" not in sys.modules  # which comes before the work of any command
    while frame is not None:
        importing |= frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    if not importing:
        signal.default_int_handler(number, frame)
    # Nothing was begun that would have to be tidied up, and raising here would end up in the
    # handlers of whatever is being imported.
    os.write(2, b"maskov: stopped\n")
    os._exit(128 + number)


def main() -> None:
    """Run the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    from maskov.cli import main

    main()


if __name__ == "__main__":
    main()
