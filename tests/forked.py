"""The command in a process of its own, without the seconds that its imports take.

A forked process can be killed, limited and sent signals like any other, and nothing that it holds
in memory comes back. What a fresh interpreter adds is tested where that is the point.
"""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

from maskov.cli import main


class Forked:
    """`maskov WORDS...`; what it says must be short, since nobody reads it before its end."""

    def __init__(self, words: list[str], before: Callable[[], object] = lambda: None) -> None:
        (self._out, out), (self._err, err) = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            # From 3.12 on Python warns of threads: those here only wait for the test's end.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _be(words, before, out, err)
        os.close(out)
        os.close(err)
        self.code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code once it has ended; that of a killed one is negative."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return the exit code and what was said."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        said = []
        for pipe in (self._out, self._err):
            with open(pipe, encoding="utf-8") as file:
                said.append(file.read())
        return self.code, said[0], said[1]


def _be(words: list[str], before: Callable[[], object], out: int, err: int) -> NoReturn:
    """Be the command; never return into the tests."""
    code = 70
    try:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # it would complain of having been forked
        for pipe, number in ((out, 1), (err, 2)):
            os.dup2(pipe, number)
        sys.stdout, sys.stderr = (os.fdopen(one, "w", encoding="utf-8") for one in (1, 2))
        # As a shell starts it, whatever the tests' own process makes of them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        before()
        main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
