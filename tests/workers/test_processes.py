"""Processes that are killed, slow, or too many: the same bytes, or one sentence."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import maskov
from maskov import Metropolis, Raw, RunError, Schedule, Workers
from maskov.runs.coordinator import Task
from maskov.runs.state import GroupState
from maskov.runs.task_runner import TaskRunner
from maskov.workers import pools
from maskov.workers.pools import Processes, run_task
from odd_workers import files
from patience import PATIENCE, wait_until
from small import random_state, random_table, tiny_bert
from stopped_runs import Heard

MODEL = tiny_bert("red green blue white black")
SETTINGS = {
    "schedule": Schedule(epochs=8, burn_in=1),
    "chains": 8,
    "length": (3, 9),
    "seed": 2,
    "thin": 2,
    "resident": 2,
}
COMMAND = [sys.executable, "-m", "maskov"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@pytest.fixture
def crews(monkeypatch) -> list[Processes]:
    """Return the crews that are made from now on."""
    made: list[Processes] = []
    begin = Processes.__init__

    def noted(self, *arguments):
        made.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(Processes, "__init__", noted)
    return made


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_turn_taken_again(tmp_path, crews):
    maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "here", **SETTINGS)
    before: list[int] = []

    class Killer(Heard):
        def moved(self, *_):
            if not before:
                workers = (*crews[0]._idle, *crews[0]._running)
                before.extend(worker.process.pid for worker in workers)
                os.kill(before[0], signal.SIGKILL)

    heard = Killer()
    maskov.sample(
        MODEL, Metropolis(Raw()), out=tmp_path / "there", workers=Workers(2), listener=heard,
        **SETTINGS,
    )  # fmt: skip
    assert before
    assert [epoch for epoch, *_ in heard.told["epoch_ended"]] == list(range(8))
    assert all(passes > 0 for *_, passes in heard.told["epoch_ended"])
    assert files(tmp_path / "there") == files(tmp_path / "here")
    for pid in before:  # and nobody is left behind
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("exit 1", r"died \(with code 1\)(?!.*memory)"),
        ("kill -9 $$", r"signal 9.* too little memory .* fewer --workers"),
    ],
)
def test_workers_that_die_again_and_again_are_one_sentence(does, said, tmp_path, monkeypatch):
    (tmp_path / "dies").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "dies").chmod(0o755)
    monkeypatch.setattr(pools.sys, "executable", str(tmp_path / "dies"))
    with pytest.raises(RunError, match=said):
        maskov.sample(MODEL, Metropolis(Raw()), workers=Workers(1), **SETTINGS)


def test_an_exception_in_a_worker_comes_back_as_itself_and_is_not_tried_again(
    tmp_path, monkeypatch, capfd
):
    """In one sentence; its traceback is a note, which `--debug` and Python show."""
    (tmp_path / "failing.py").write_text(
        "import sys\n"
        "import maskov\n"
        "class Failing(maskov.Site):\n"
        "    def propose(self, *arguments):\n"
        "        if 'maskov.workers.pools' in sys.orig_argv:\n"
        f"            open({str(tmp_path / 'calls')!r}, 'a').write('x')\n"
        "            raise LookupError('no such word\\nat all')\n"
        "        return super().propose(*arguments)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = Metropolis(Raw(), maskov.parts.load_part("failing:Failing", [], {}, trust=True))
    with pytest.raises(RunError, match="LookupError: no such word at all") as told:
        maskov.sample(random_table(), kernel, out=tmp_path / "run", chains=2, workers=Workers(1))
    assert "memory" not in str(told.value)
    assert "\n" not in str(told.value)
    assert "in propose" in told.value.__notes__[0]
    assert (tmp_path / "calls").read_text() == "x"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (MemoryError(), RunError, "a worker ran out of memory"),
        (RuntimeError("CUDA error: out of memory"), RunError, "a worker ran out of memory"),
        (ZeroDivisionError("by 0"), RunError, "a worker failed with ZeroDivisionError: by 0"),
        (EOFError(), RunError, "a worker failed with EOFError"),
        (maskov.InputError("an option."), maskov.InputError, r"\Aan option\.\Z"),
    ],
)
def test_what_a_worker_raises_while_it_is_built_is_told_too(error, kind, said):
    def broken() -> TaskRunner:
        raise error

    task = Task(3, GroupState.fresh(random_state(MODEL, 2, 4), 100), 5, 1.0)
    answer = pickle.loads(pickle.dumps(run_task(broken, task)))
    assert answer.number == 3
    with pytest.raises(kind, match=said):
        raise answer.failure


@pytest.mark.slow
def test_one_process_and_four_give_the_same_bytes(tmp_path):
    """By the command, with the shipped model: one process with one thread, 1 worker and 4."""
    ask = "sample --epochs 4 --chains 8 --length 6:10 --thin 2 --seed 9 --quiet --resident 2"
    for name, more in (("here", "--threads 1"), ("one", "--workers 1"), ("four", "--workers 4")):
        words = f"{ask} {more} --out {tmp_path / name}".split()
        subprocess.run([*COMMAND, *words], check=True, **QUIET)
    assert files(tmp_path / "here") == files(tmp_path / "one") == files(tmp_path / "four")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_saves_and_the_run_goes_on(number, tmp_path):
    ask = "sample --model untrained --chains 6 --length 6:9 --resident 2 --seed 3 --thin 50"
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(
        [*COMMAND, *f"{ask} --epochs 150 --threads 1 --out {whole}".split()], check=True, **QUIET
    )
    process = subprocess.Popen(
        [*COMMAND, *f"{ask} --epochs 150 --workers 2 --out {cut}".split()],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: (cut / "traces.npy").exists())
    wait_until(lambda: maskov.Run.open(cut).traces["steps"].any())
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert f"maskov resume {cut}" in said.decode()
    assert b"Traceback" not in said
    assert not maskov.Run.open(cut).finished
    subprocess.run([*COMMAND, *f"resume {cut} --workers 1".split()], check=True, **QUIET)
    assert files(cut) == files(whole)
