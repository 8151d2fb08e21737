"""A command that ends before its work: Ctrl-C while it imports, and memory that runs out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from maskov.cli import main
from maskov.startup import is_command

COMMAND = [sys.executable, "-m", "maskov", "sample", "--model", "untrained", "--epochs", "9999"]


def _interrupted(after: float) -> tuple[int, str]:
    with subprocess.Popen(
        [*COMMAND, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


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
    code, err = _interrupted(after)
    assert code == 130
    assert err.count("\n") == 1
    assert "stopped" in err


def test_ctrl_c_in_a_command_is_one_sentence(tmp_path, monkeypatch, capfd):
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    (tmp_path / "texts").write_text("the cat\n")
    monkeypatch.setattr("maskov.scoring.score_texts", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["score", str(tmp_path / "texts"), "--model", "untrained"])
    assert ended.value.code == 130
    assert capfd.readouterr().err == "maskov: stopped\n"


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
def test_memory_that_runs_out_is_one_sentence(error, tmp_path, monkeypatch, capfd):
    def exhausted(*_, **__):
        raise error

    (tmp_path / "texts").write_text("the cat\n")
    monkeypatch.setattr("maskov.scoring.score_texts", exhausted)
    with pytest.raises(SystemExit) as ended:
        main(["score", str(tmp_path / "texts"), "--model", "untrained"])
    err = capfd.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("maskov: not enough memory; lower --token-budget")
    assert err.count("\n") == 1


def test_other_errors_keep_their_traceback(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug")

    (tmp_path / "texts").write_text("the cat\n")
    monkeypatch.setattr("maskov.scoring.score_texts", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["score", str(tmp_path / "texts"), "--model", "untrained"])


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
