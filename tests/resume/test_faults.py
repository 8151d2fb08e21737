"""What can go wrong on a machine, and what becomes of a run: docs/reference/faults.md."""

import itertools
import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from forked import Forked
from maskov import Gibbs, Metropolis, Norm, Raw, Run, Schedule, Span, resume, sample
from maskov.errors import Interrupted, ModelError, RunError
from maskov.runs import manifest, state
from maskov.runs.files import locked
from odd_workers import files
from patience import wait_until
from small import tiny_bert
from stopped_runs import cut

WORDS = "red green blue white black"
MODEL = tiny_bert(WORDS, torch.float32)
KERNEL = Metropolis(Norm())
SETTINGS = {
    "schedule": Schedule(epochs=5, burn_in=1),
    "chains": 6,
    "length": (3, 7),
    "seed": 2,
    "thin": 2,
    "resident": 3,
}


def _stopped(folder: Path, looks: int = 60) -> None:
    """Stop a run on its way."""
    cut(folder, looks, MODEL, KERNEL, checkpoint_every=0, **SETTINGS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    sample(MODEL, KERNEL, out=folder, **SETTINGS)
    return folder


# Kills and signals. Checkpoints at every step, so that many kills fall between or into writes.
ASK = "sample --model untrained --moves site --chains 4 --length 6:10 --thin 4 --seed 9 --quiet"


def _killed_after(checkpoints: int, moment: float) -> None:
    """Have this process killed a moment after it wrote so many checkpoints, wherever it is."""
    written, write = itertools.count(1), state.write_atomically

    def counted(*arguments):
        write(*arguments)
        if next(written) == checkpoints:
            signal.setitimer(signal.ITIMER_REAL, moment)

    state.write_atomically = counted


def test_killed_and_resumed_is_the_same_to_the_byte(tmp_path):
    """By a signal that no handler sees, at moments that fall anywhere in a step or a write.

    A run of eight epochs has 56 checkpoints at least: it is never over before.
    """
    folder, moments, ask = tmp_path / "killed", random.Random(0), f"{ASK} --epochs 8"
    assert Forked(f"{ask} --out {tmp_path / 'whole'}".split()).end()[0] == 0
    for words in (f"{ask} --out {folder}", f"resume {folder} --quiet"):
        when = moments.randint(1, 16), moments.uniform(0.001, 0.01)
        process = Forked(f"{words} --checkpoint-every 0".split(), partial(_killed_after, *when))
        assert process.end()[0] == -signal.SIGALRM
    assert Forked(f"resume {folder}".split()).end()[0] == 0
    assert files(folder) == files(tmp_path / "whole")


def _is_tuned(folder: Path) -> bool:
    """Whether a run has chosen what its kernel leaves open, before its first epoch."""
    file = folder / "manifest.json"
    return file.exists() and json.loads(file.read_text())["tuning"] is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(number, tmp_path):
    folder = tmp_path / "run"
    words = "sample --model untrained --epochs 3000 --chains 2 --length 5 --checkpoint-every 9999"
    process = Forked([*words.split(), "--out", str(folder)])
    wait_until(lambda: process.poll() is not None or _is_tuned(folder))
    assert not list(folder.glob("checkpoints/*.checkpoint"))
    process.send(number)
    code, out, err = process.end()
    assert code == 128 + number
    assert f"maskov resume {folder}" in err
    assert "Traceback" not in err
    assert out == ""
    assert list(folder.glob("checkpoints/*.checkpoint"))


def test_a_run_too_large_to_trace_its_tokens(tmp_path, monkeypatch):
    samples, folder = sample(MODEL, KERNEL, **SETTINGS).samples, tmp_path / "run"
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", 1)
    assert sample(MODEL, KERNEL, **SETTINGS).samples == samples
    _stopped(folder)
    assert not resume(folder, MODEL).recovered
    expected = files(folder)
    assert "tokens" not in Run.open(folder).traces
    (folder / "samples.jsonl").write_bytes(b"{")
    with pytest.raises(RunError, match="damaged"):
        Run.open(folder).samples  # noqa: B018
    # Samples are written from the arrays: no chain moves for it.
    run = resume(folder, MODEL, stop=lambda: pytest.fail("it went on"))
    assert ["samples.jsonl" in one for one in run.recovered] == [True]
    # A finished run is left as it is, and needs no model.
    assert resume(folder).samples == samples
    content = bytearray((folder / "tokens.npy").read_bytes())
    content[-1] ^= 1
    (folder / "tokens.npy").write_bytes(content)
    assert "tokens.npy" in resume(folder, MODEL).recovered[0]
    assert files(folder) == expected


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("when", [1, 7, 16])
def test_a_model_that_turns_to_nan_stops_the_run_and_spoils_nothing(when, stops, tmp_path, whole):
    """What a broken batch said is never saved, even if somebody asks to stop right after it.

    A repaired model continues the run; before its first epoch was over there is nothing to keep.
    """
    broken, folder = tiny_bert(WORDS, torch.float32), tmp_path
    broken.calls = 0

    def sometimes(*arguments):
        broken.calls += 1
        found = MODEL.hidden_at(*arguments)
        return found * torch.nan if broken.calls == when else found

    broken.hidden_at = sometimes
    with pytest.raises((ModelError, Interrupted)):
        sample(
            broken, KERNEL, out=folder / "run", checkpoint_every=0,
            stop=lambda: stops and broken.calls >= when, **SETTINGS,
        )  # fmt: skip
    if (folder / "run" / "manifest.json").exists():
        resume(folder / "run", MODEL)
        assert files(folder / "run") == files(whole)
    else:
        assert when < 16


@pytest.mark.parametrize("kernel", [Metropolis(Raw()), Metropolis(Raw(), Span()), Gibbs()], ids=str)
def test_scores_of_tokens_that_are_never_drawn_must_be_numbers_too(kernel):
    model = tiny_bert(WORDS, torch.float32)
    model.head.bias.data[model.forbidden] = torch.nan
    with pytest.raises(ModelError, match="not-a-number"):
        sample(model, kernel, **SETTINGS)


def test_out_of_memory_on_a_single_sequence_is_one_sentence(tmp_path):
    tight = tiny_bert(WORDS, torch.float32)
    tight.hidden_at = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(ModelError, match="out of memory on a single sequence"):
        sample(tight, KERNEL, out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_where_it_began(tmp_path, monkeypatch):
    _stopped(tmp_path / "run", 20)
    asked = []
    monkeypatch.setattr(manifest, "load", lambda device, **_: asked.append(device) or MODEL)
    # Nobody else may work there meanwhile; the lock of a process that was killed is free.
    with locked(tmp_path / "run"), pytest.raises(RunError, match="in use by another process"):
        resume(tmp_path / "run", MODEL)
    resume(tmp_path / "run")
    assert asked == ["cpu"]


@pytest.mark.parametrize("name", ["samples.jsonl", "traces", "lock"])
def test_files_of_the_user_are_never_taken_for_leftovers(name, tmp_path):
    """What a creation that was cut off has left is used again."""
    (tmp_path / name).write_text("precious")
    if name == "lock":
        (tmp_path / "manifest.json.tmp").write_text("{")
        assert len(sample(MODEL, Gibbs(), out=tmp_path, **SETTINGS).samples) == 12
        return
    with pytest.raises(RunError, match="something else"):
        sample(MODEL, Gibbs(), out=tmp_path, **SETTINGS)
    assert (tmp_path / name).read_text() == "precious"


def test_a_run_that_became_read_only_is_one_sentence(tmp_path, monkeypatch):
    _stopped(tmp_path / "run")
    real = os.open

    def refused(path, flags, *rest, **more):
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(RunError, match="read-only file system"):
        resume(tmp_path / "run", MODEL)


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path, whole, monkeypatch):
    wall = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))
    sample(MODEL, KERNEL, out=tmp_path / "run", checkpoint_every=0, **SETTINGS)
    assert files(tmp_path / "run") == files(whole)


def test_what_is_told_of_a_run_under_way_is_of_whole_epochs(tmp_path):
    _stopped(tmp_path / "run", 110)
    run = Run.open(tmp_path / "run")
    steps = run.traces["steps"]
    done = int((steps > 0).all(1).sum())
    assert run.summary().epochs_done == done
    assert {one.epoch for one in run.samples} <= set(range(done))
