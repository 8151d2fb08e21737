"""Every test runs with tensor shapes and types checked at each call of the package."""

from __future__ import annotations

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
import sys
from contextlib import nullcontext
from itertools import pairwise

import pytest


def _hands_out() -> bool:
    """Whether this process only hands out tests to others (`pytest -n 2`), and runs none."""
    return "PYTEST_XDIST_WORKER" not in os.environ and any(
        word in ("-n", "--numprocesses") and count != "0" for word, count in pairwise(sys.argv)
    )


def _import_with_checks() -> None:
    try:
        from typecheck import CheckedImports

        checked = CheckedImports("maskov")
    except ImportError:  # a machine with the plain install, such as a borrowed GPU, has no checks
        checked = nullcontext()
    with checked:
        import maskov.cli
        import maskov.evaluation
        import maskov.exact
        import maskov.public
        import maskov.ratings
        import maskov.ui.report
        import maskov.ui.terminal
        import maskov.verify  # noqa: F401

    import typer

    # Commands are made once, not anew at each call of `main`: half the time of a short one.
    typer.main.get_command = functools.cache(typer.main.get_command)


if not _hands_out():  # seconds, in which no test could run
    _import_with_checks()


def pytest_configure(config):
    if _hands_out() and config.getoption("dist", "no") == "no":  # after all it runs tests itself
        _import_with_checks()


@pytest.fixture(autouse=True)
def _no_global_random_state():
    """Fail a test whose code under test touches torch's global generator."""
    import torch

    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "the global random state was used"


# Large grids of cases: every fourth case of each test runs always, the others with the slow tests.
GRIDS = frozenset(
    {
        "test_async_resume.py",
        "test_async_spans.py",
        "test_async_translation.py",
        "test_asynchronous.py",
        "test_constrained_runs.py",
        "test_constraints.py",
        "test_delayed_acceptance.py",
        "test_early_ends.py",
        "test_expert_runs.py",
        "test_experts.py",
        "test_fasta_rewriting.py",
        "test_forged_checkpoints.py",
        "test_frozen_runs.py",
        "test_frozen_texts.py",
        "test_grouped_runs.py",
        "test_last_words.py",
        "test_odd_folders.py",
        "test_own_parts.py",
        "test_recorded_gibbs.py",
        "test_recorded_rounds.py",
        "test_replays.py",
        "test_resized_runs.py",
        "test_shipped_translation.py",
        "test_special_tokens.py",
        "test_tasks.py",
        "test_translation_resume.py",
        "test_translation_search.py",
        "test_whole_folders.py",
    }
)


def pytest_collection_finish():
    """Leave what was imported out of every later search for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen: dict[str, int] = {}
    for item in items:
        if item.path.name in GRIDS:
            test = item.nodeid.partition("[")[0]
            seen[test] = seen.get(test, -1) + 1
            if seen[test] % 4:
                item.add_marker(pytest.mark.slow)
