"""What all tests share; with `CHECK_TYPES=1`, shapes and types are checked at each call."""

import os
import signal
import threading

# A shell ignores Ctrl-C in what it runs in the background, and so would every process of a test.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One thread, so that the suite is as fast as it is steady on a shared machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import functools
import gc
import io
import sys
from contextlib import nullcontext
from itertools import pairwise

import pytest

import mutations  # noqa: F401 - how tests of random input are run


def _hands_out() -> bool:
    """Whether this process only hands out tests to others (`pytest -n 2`), and runs none."""
    return "PYTEST_XDIST_WORKER" not in os.environ and any(
        word in ("-n", "--numprocesses") and count != "0" for word, count in pairwise(sys.argv)
    )


def _imports() -> None:
    checked = nullcontext()
    if os.environ.get("CHECK_TYPES"):  # a night's job: checks take as long again as the tests
        from jaxtyping import install_import_hook

        checked = install_import_hook("maskov", "typecheck.checked")
    with checked:
        import maskov.cli
        import maskov.evaluation
        import maskov.exact
        import maskov.filling
        import maskov.likelihood
        import maskov.ratings
        import maskov.rewriting
        import maskov.scoring
        import maskov.translation
        import maskov.ui.report
        import maskov.ui.terminal  # noqa: F401

    import typer

    # Commands are made once, not anew at each call of `main`: half the time of a short one.
    typer.main.get_command = functools.cache(typer.main.get_command)


if not _hands_out():  # seconds, in which no test could run
    gc.disable()  # nothing of it is garbage
    _imports()


def pytest_configure(config):
    if _hands_out() and config.getoption("dist", "no") == "no":  # after all it runs tests itself
        _imports()


@pytest.fixture(autouse=True)
def _no_global_random_state():
    """Fail a test whose code under test touches torch's global generator."""
    import torch

    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "the global random state was used"


@pytest.fixture
def call(capfd, monkeypatch):
    """Run the command in this process; return its exit code, output and errors."""
    from maskov.cli import main

    def run(*words: object, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def refused(call, tmp_path):
    """Run a command that must fail with one sentence and write nothing; return the sentence."""

    def files():
        """Return all files but the bytecode of modules that were imported."""
        places = (place for place in tmp_path.rglob("*") if "__pycache__" not in place.parts)
        return {place: place.is_file() and place.read_bytes() for place in places}

    def run(*words: object, **given) -> str:
        before = files()
        code, out, err = call(*words, **given)
        assert (code, out) == (2, ""), err
        assert err.startswith("maskov: ")
        assert err.count("\n") == 1
        assert err.rstrip().endswith((".", ")"))
        assert files() == before
        return err

    return run


def pytest_collection_finish():
    """Leave what was imported out of every later search for garbage."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
