"""A command that ends before its work: Ctrl-C while it imports, and memory that runs out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest

from maskov.cli import main
from maskov.startup import is_command

COMMAND = [sys.executable, "-m", "maskov", "sample", "--model", "untrained", "--epochs", "9999"]


@pytest.mark.parametrize(
    "module", ["maskov.startup", "typer", "maskov.cli", "numpy", "torch.nn", "maskov.models"]
)
def test_ctrl_c_while_importing_is_one_sentence(module):
    """Whatever was imported last; before maskov's first line Python answers by itself."""
    seen: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *COMMAND[1:]], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        deadline = threading.Timer(120, process.kill)
        deadline.start()
        for line in process.stderr:
            seen.append(line)
            if line.endswith(f" {module}\n"):
                process.send_signal(signal.SIGINT)
                break
        seen += process.stderr.readlines()
        deadline.cancel()
    assert process.returncode == 130
    assert [line for line in seen if not line.startswith("import time:")] == ["maskov: stopped\n"]


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0])
def test_ctrl_c_at_any_early_moment_is_one_sentence(after):
    with subprocess.Popen(
        [*COMMAND, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert "stopped" in err


def test_ctrl_c_in_a_command_is_one_sentence(call, monkeypatch):
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("maskov.scoring.score_texts", interrupted)
    assert call("score", "the cat") == (130, "", "maskov: stopped\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "-m", "maskov", "sample"], True),
        (["python", "-X", "dev", "-m", "maskov"], True),
        (["python", "-u", "/usr/bin/maskov", "sample"], True),
        (["python", "script.py", "maskov"], False),
        (["python", "-c", "import maskov"], False),
        (["python", "-m", "pytest", "maskov"], False),
        (["python"], False),
    ],
)
def test_programs_that_import_maskov_keep_their_ctrl_c(words, expected):
    assert is_command(words) is expected


CPU = (
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 9000000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    "error", [RuntimeError(CPU), MemoryError(), RuntimeError("CUDA out of memory")], ids=str
)
def test_memory_that_runs_out_is_one_sentence(error, refused, monkeypatch):
    monkeypatch.setattr("maskov.scoring.score_texts", Mock(side_effect=error))
    told = refused("score", "the cat")
    assert "not enough memory" in told
    assert "--token-budget" in told


def test_other_errors_keep_their_traceback(monkeypatch):
    monkeypatch.setattr("maskov.scoring.score_texts", Mock(side_effect=RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["score", "the cat", "--model", "untrained"])


@pytest.mark.slow
def test_a_limit_of_memory_is_one_sentence(tmp_path):
    """A real limit, too small for the activations of a long batch."""
    (tmp_path / "texts").write_text(("the cat sat on the mat " * 18 + "\n") * 40)
    limited = (
        "import resource, sys, maskov.cli, torch; torch.set_num_threads(1); "
        "maskov.score(maskov.load('untrained', 'cpu'), ['the cat']); "  # all is imported
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096; "
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**28,) * 2); "
        "maskov.cli.main(sys.argv[1:])"
    )
    words = ["score", str(tmp_path / "texts"), "--model", "untrained", "--token-budget", "9999999"]
    ended = subprocess.run(
        [sys.executable, "-c", limited, *words], capture_output=True, text=True, timeout=100
    )
    assert "Traceback" not in ended.stderr
    if ended.returncode:  # otherwise smaller batches did
        assert ended.returncode == 2
        assert "memory" in ended.stderr
