"""Commands compute with one thread, so that another busy process does not stop them."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch

from maskov import Schedule, sample
from maskov.cli import main
from maskov.cli.signals import one_thread
from maskov.models import untrained

SPIN = "while True: pass"


@pytest.fixture
def seen(monkeypatch):
    """How many threads torch has while a command computes, in this thread and in a new one."""
    before, counts = torch.get_num_threads(), []
    torch.set_num_threads(3)

    def look(*given, **_):
        for one in given:
            if isinstance(one, socket.socket):
                one.close()  # that of the server
        counts.append(torch.get_num_threads())
        other = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
        other.start()
        other.join()
        raise SystemExit(0)

    for name in (
        "scoring.score_texts", "evaluation.evaluate", "ui.report.build", "verify.verify",
        "cli.inspecting._print_diagnosis",
    ):  # fmt: skip
        monkeypatch.setattr(f"maskov.{name}", look)
    monkeypatch.setattr("maskov.ui.web.serving.serve", look)
    yield counts
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "words",
    ["score TEXTS --model untrained", "evaluate TEXTS", "report RUN --format md", "diagnose RUN",
     "serve RUN --port 0", "verify"],
)  # fmt: skip
def test_a_command_computes_with_one_thread(words, seen, tmp_path):
    (tmp_path / "texts").write_text("the cat sat\n")
    if "RUN" in words:
        sample(untrained(), schedule=Schedule(epochs=2), chains=2, length=3, out=tmp_path / "run")
    places = {"TEXTS": str(tmp_path / "texts"), "RUN": str(tmp_path / "run")}
    with pytest.raises(SystemExit):
        main([places.get(word, word) for word in words.split()])
    assert seen == [1, 1]


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    one_thread(lambda: None)()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def _timed(words: list[str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a command, started as users start it."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "maskov", *words], env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)  # fmt: skip
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("command", ["sample", "score", "evaluate"])
def test_beside_busy_processes_a_command_keeps_its_share(command, tmp_path):
    """It takes no more computing than alone, and about twice the time: half of a core is its own.

    With spinning threads it took many times both.
    """
    (tmp_path / "texts").write_text("the cat sat on the mat and the dog ran to the river\n" * 300)
    words = {
        "sample": ["sample", "--model", "untrained", "--epochs", "8", "--workers", "0", "-q"],
        "score": ["score", str(tmp_path / "texts"), "--model", "untrained"],
        "evaluate": ["evaluate", str(tmp_path / "texts")],
    }[command]
    alone, computing = _timed(words)
    spinning = [
        subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(len(os.sched_getaffinity(0)))
    ]
    try:
        busy, computing_busy = _timed(words)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert computing_busy < 2 * computing
    assert busy < 5 * alone
