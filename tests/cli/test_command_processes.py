"""The command as a process: what it imports, how it ends early, and the threads it takes."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest
import torch

from forked import Forked
from maskov.cli import main
from small import on_untrained

COMMANDS = "sample infill rewrite translate score evaluate resume diagnose report serve verify "
COMMANDS += "models"
HEAVY = {"torch", "transformers", "numpy", "scipy"}


# Help and version come at once: nothing heavy is imported for them.


@pytest.mark.parametrize(
    "words",
    ["--version", "--help", "sample --help", "rate --help",
     *(pytest.param(f"{name} --help", marks=pytest.mark.slow) for name in COMMANDS.split())],
)  # fmt: skip
def test_version_and_help_import_nothing_heavy(words):
    command = [sys.executable, "-X", "importtime", "-m", "maskov", *words.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert ended.stdout.strip()
    assert "maskov.cli" in imported
    assert not imported & HEAVY
    assert len(imported) < 600  # 450 in 0.3 s; importing torch is over a thousand more


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, maskov; maskov.score; heavy = {'torch', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy; maskov.energies; maskov.Score; "
        "assert not {'maskov.filling', 'maskov.rewriting', 'maskov.plan'} & set(sys.modules); "
        "from maskov import *; "
        "assert sample is maskov.sample and 'sample' in dir(maskov); "
        "assert not hasattr(maskov, 'nothing') and 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("module", [
    "maskov.cli", "torch.nn",
    *(pytest.param(name, marks=pytest.mark.slow)
      for name in ("typer", "numpy", "maskov.models")),
])  # fmt: skip
def test_ctrl_c_while_importing_is_one_sentence(module):
    """Whatever is being imported; before maskov's first line Python answers by itself.

    The process sends the signal to itself, at the import of that module however busy the machine.
    """
    program = (
        "import os, runpy, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(name, *rest):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\n"
        "runpy.run_module('maskov', run_name='__main__', alter_sys=True)\n"
    )
    words = ["sample", "--model", "untrained", "--epochs", "1"]
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "maskov: stopped\n")


def test_ctrl_c_in_a_command_is_one_sentence(call, monkeypatch):
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("maskov.scoring.score_texts", interrupted)
    assert call("score 'the cat'") == (130, "", "maskov: stopped\n")


def test_programs_that_import_maskov_keep_their_ctrl_c(call):
    assert call("models")[0] == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


CPU = (
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 9000000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    "error", [RuntimeError(CPU), MemoryError(), RuntimeError("CUDA out of memory")], ids=str
)
def test_memory_that_runs_out_is_one_sentence(error, refused, monkeypatch):
    monkeypatch.setattr("maskov.scoring.score_texts", Mock(side_effect=error))
    told = refused("score 'the cat'")
    assert "not enough memory" in told
    assert "--token-budget" in told
    # Other errors keep their traceback.
    monkeypatch.setattr("maskov.scoring.score_texts", Mock(side_effect=RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["score", "the cat", "--model", "untrained"])


def test_a_reader_that_goes_away_is_not_a_crash():
    """As with `| head -1`; the pipe holds far less than there is to write."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)

    def write_to_the_pipe():
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)

    words = ["sample", "--json", "-q", "-n", "1", "-c", "200", "--length", "3", "-k", "gibbs"]
    process = Forked(on_untrained(words), before=write_to_the_pipe)
    os.close(writer)
    with open(reader, "rb", buffering=0) as lines:
        assert lines.readline().startswith(b"{")
    assert process.end() == (1, "", "")


# Commands compute with one thread, so that another busy process does not stop them.


@pytest.fixture
def seen(monkeypatch):
    """How many threads torch has while a command computes, in this thread and in a new one."""
    before, counts = torch.get_num_threads(), []
    torch.set_num_threads(3)

    def look(*_, sockets=(), **__):
        for one in sockets:
            one.close()  # that of the server
        counts.append(torch.get_num_threads())
        other = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
        other.start()
        other.join()
        raise SystemExit(0)

    for name in ("scoring.score_texts", "evaluation.evaluate", "ui.report.build", "exact.verify",
                 "runs.Run.diagnose"):  # fmt: skip
        monkeypatch.setattr(f"maskov.{name}", look)
    monkeypatch.setattr("maskov.ui.viewer.server.server_of", lambda _: Mock(run=look))
    yield counts
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "line", ["score 'the cat'", "evaluate texts", "report run --format md", "diagnose run",
             "serve run --port 0", "verify"],
)  # fmt: skip
def test_a_command_computes_with_one_thread(line, seen, call, tmp_path):
    (tmp_path / "texts").write_text("the cat sat\n")
    if " run" in line:
        call("sample -n 2 -c 2 --length 3 --out run -q")
    assert call(line)[0] == 0
    assert seen == [1, 1]
    assert call("models")[0] == 0  # a command that returns
    assert torch.get_num_threads() == 3
