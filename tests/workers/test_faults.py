"""What can go wrong on a machine, and what becomes of a run: docs/reference/faults.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path

import pytest
import torch

import maskov
from maskov import Metropolis, ModelError, Norm, Run, RunError, Schedule, resume, sample
from maskov.config import ModelSource
from maskov.errors import Interrupted
from maskov.execution.recorded import RecordedSites
from maskov.runs import async_group as flight
from odd_workers import files
from small import tiny_bert

MODEL = tiny_bert("red green blue white black", torch.float32)
SETTINGS = {
    "schedule": Schedule(epochs=5, burn_in=1),
    "chains": 6,
    "length": (3, 7),
    "seed": 2,
    "thin": 2,
    "resident": 3,
}
KERNEL = Metropolis(Norm())
COMMAND = [sys.executable, "-m", "maskov"]


def _stopped(folder: Path, looks: int = 60, **more) -> None:
    left = iter(range(10**6))
    with pytest.raises(Interrupted):
        sample(MODEL, KERNEL, out=folder, stop=lambda: next(left) > looks, **SETTINGS, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    sample(MODEL, KERNEL, out=folder, **SETTINGS)
    return folder


def test_the_driver_dies_at_any_moment(tmp_path, whole, monkeypatch):
    """Not a byte is written after some moment; whichever it is, the run goes on to the same end.

    Each attempt dies at a later write or rename than the one before; nothing is tidied up.
    """
    folder, calls = tmp_path / "run", {"left": 0}

    class DeadError(BaseException):
        """The process is gone."""

    def mortal(function):
        def call(*arguments, **settings):
            calls["left"] -= 1
            if calls["left"] < 0:
                raise DeadError
            return function(*arguments, **settings)

        return call

    deaths = 0
    for life in range(1, 200):
        calls["left"] = 2 * life
        with monkeypatch.context() as patch:
            for name in ("fsync", "replace"):
                patch.setattr(os, name, mortal(getattr(os, name)))
            patch.setattr(Path, "unlink", lambda *_, **__: None)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            try:
                if (folder / "manifest.json").exists():
                    resume(folder, MODEL, checkpoint_every=0)
                else:
                    sample(MODEL, KERNEL, out=folder, checkpoint_every=0, **SETTINGS)
                break
            except DeadError:
                deaths += 1
    assert deaths >= 5
    assert files(folder) == files(whole)


def test_a_group_whose_checkpoints_are_all_damaged_goes_the_way_again(tmp_path, whole):
    """Alone: the other groups stay where they are, and samples that were written are not twice."""
    _stopped(tmp_path / "run", 90, checkpoint_every=0)
    lost = sorted((tmp_path / "run" / "checkpoints").glob("00001-*"))
    assert lost
    for file in lost:
        file.write_bytes(file.read_bytes()[:-1])
    run = resume(tmp_path / "run", MODEL)
    assert sorted(run.damaged) == lost
    assert files(tmp_path / "run") == files(whole)


@pytest.mark.parametrize("group", [0, 2])
def test_lost_checkpoints_are_not_missed(group, tmp_path, whole):
    _stopped(tmp_path / "run", 90, checkpoint_every=0)
    for file in (tmp_path / "run" / "checkpoints").glob(f"0000{group}-*"):
        file.unlink()
    resume(tmp_path / "run", MODEL)
    assert files(tmp_path / "run") == files(whole)


def test_checkpoints_of_another_run_are_not_taken(tmp_path, whole):
    """Whole files, but of other chains."""
    _stopped(tmp_path / "run", 90, checkpoint_every=0)
    other = SETTINGS | {"length": (4, 8), "chains": 6}
    sample(MODEL, KERNEL, out=tmp_path / "other", checkpoint_every=0, **other)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", tmp_path / "run" / "checkpoints")
    kept = files(tmp_path / "run")
    with pytest.raises(RunError, match=r"'config\.\w+(\.\w+)*' is not what it was"):
        resume(tmp_path / "run", MODEL)
    assert files(tmp_path / "run") == kept
    # Without them it starts again.
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    resume(tmp_path / "run", MODEL)
    assert files(tmp_path / "run") == files(whole)


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path, whole, monkeypatch):
    wall = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))
    sample(MODEL, KERNEL, out=tmp_path / "run", checkpoint_every=0, **SETTINGS)
    assert files(tmp_path / "run") == files(whole)


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_a_model_that_turns_to_nan_stops_the_run_and_spoils_nothing(share, tmp_path, whole):
    """One sentence; completed epochs stay, and with a mended model the run goes on."""
    broken, calls = tiny_bert("red green blue white black", torch.float32), []
    when = 0

    def sometimes(tokens, lengths, place, source):
        calls.append(1)
        answer = type(broken).hidden_at(broken, tokens, lengths, place, source)
        return answer * float("nan") if len(calls) == when else answer

    broken.hidden_at = sometimes
    sample(broken, KERNEL, **SETTINGS)
    when = 1 + int(share * len(calls))
    calls.clear()
    with pytest.raises(ModelError, match="NaN"):
        sample(broken, KERNEL, out=tmp_path / "run", checkpoint_every=0, **SETTINGS)
    if not (tmp_path / "run").exists():
        assert share == 0.0  # before the first epoch was over: nothing worth keeping
        return
    resume(tmp_path / "run", MODEL)
    assert files(tmp_path / "run") == files(whole)


def test_out_of_memory_halves_the_batch_and_the_chains_are_the_same():
    """The same decisions, of which only the rounding could differ."""
    tight = tiny_bert("red green blue white black", torch.float64)
    plain = type(tight).hidden_at
    failed = []

    def narrow(tokens, lengths, place, source):
        if tokens.shape[0] > 4:
            failed.append(tokens.shape[0])
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return plain(tight, tokens, lengths, place, source)

    expected = sample(tight, KERNEL, **SETTINGS)
    tight.hidden_at = narrow
    run = sample(tight, KERNEL, **SETTINGS)
    assert failed
    assert [one.ids for one in run.samples] == [one.ids for one in expected.samples]


def test_out_of_memory_on_a_single_sequence_is_one_sentence(tmp_path):
    tight = tiny_bert("red green blue white black", torch.float32)

    def never(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    tight.hidden_at = never
    with pytest.raises(ModelError, match="out of memory on a single sequence"):
        sample(tight, KERNEL, out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_out_of_memory_in_a_recorded_round_is_one_sentence_and_spoils_nothing(
    tmp_path, monkeypatch
):
    """The rounds that a GPU records cannot be halved; with more room the run goes on."""
    monkeypatch.setattr(flight, "sampler_for", lambda *_: RecordedSites)
    tight, calls = tiny_bert("red green blue white black", torch.float32), []
    plain = type(tight).hidden_of

    def full(passes, longest, source):
        calls.append(1)
        if len(calls) == 40:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return plain(tight, passes, longest, source)

    sample(MODEL, KERNEL, out=tmp_path / "whole", **SETTINGS)
    tight.hidden_of = full
    with pytest.raises(ModelError, match="ran out of memory in the middle of a round"):
        sample(tight, KERNEL, out=tmp_path / "run", checkpoint_every=0, **SETTINGS)
    resume(tmp_path / "run", MODEL)
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_a_model_file_that_was_changed_is_refused(tmp_path):
    """Between a start and going on: by one weight."""
    model = tiny_bert("red green blue white black", torch.float32)
    model.network.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    loaded = maskov.load(tmp_path / "model", "cpu")
    left = iter(range(10**6))
    with pytest.raises(Interrupted):
        sample(
            loaded, KERNEL, out=tmp_path / "run", stop=lambda: next(left) > 60,
            source=ModelSource(str(tmp_path / "model")), **SETTINGS,
        )  # fmt: skip
    with torch.no_grad():
        next(model.network.parameters())[0, 0] += 1e-3
    model.network.save_pretrained(tmp_path / "model")
    with pytest.raises(RunError, match="not the one this run began with"):
        resume(tmp_path / "run")


def test_two_processes_do_not_share_a_run_folder(tmp_path):
    """The second is refused, and the first does not notice."""
    from maskov.runs.files import locked

    _stopped(tmp_path / "run")
    holder = subprocess.Popen(
        [sys.executable, "-c",
         "import fcntl, sys, time\n"
         "file = open(sys.argv[1], 'r+')\n"
         "fcntl.flock(file, fcntl.LOCK_EX)\n"
         "print('held', flush=True)\n"
         "time.sleep(60)", str(tmp_path / "run" / "lock")],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="in use by another process"):
            resume(tmp_path / "run", MODEL)
    finally:
        holder.kill()  # and a lock whose holder was killed is free
        holder.wait()
        holder.stdout.close()
    with locked(tmp_path / "run"):
        pass
    resume(tmp_path / "run", MODEL)


# A small file system that is really full or really read-only needs the right to mount one.


@lru_cache(maxsize=1)
def _can_mount() -> bool:
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True
    )
    return done.returncode == 0


def _on_small_disk(script: str, options: str, tmp_path: Path) -> str:
    """Run a script on a file system of its own, mounted for it alone; return what it says."""
    if shutil.which("unshare") is None or not _can_mount():
        pytest.skip("a file system of its own cannot be mounted here")
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c",
         f"mount -t tmpfs -o {options} none {mount} && cd {mount} && {script}"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_disk_that_is_full_is_one_sentence_and_with_room_the_run_goes_on(tmp_path):
    ask = "sample --model untrained --epochs 60 --chains 4 --length 6 --thin 1 --seed 1 -q"
    maskov_ = " ".join(COMMAND)
    said = _on_small_disk(
        f"{maskov_} {ask} --out whole >/dev/null; "
        "dd if=/dev/zero of=filler bs=1k count=100000 2>/dev/null; rm -rf whole; "
        f"{maskov_} {ask} --checkpoint-every 0 --out run >/dev/null; echo code $?; "
        f"rm filler; {maskov_} resume run >/dev/null 2>&1 || {maskov_} {ask} --out run >/dev/null; "
        f"{maskov_} {ask} --out again >/dev/null; cmp run/samples.jsonl again/samples.jsonl && "
        "echo same",
        "size=700k", tmp_path,
    )  # fmt: skip
    assert "no space left on device" in said
    assert "code 2" in said
    assert "same" in said.split()


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    ask = "sample --model untrained --epochs 3 --chains 2 --length 6 --out run -q"
    said = _on_small_disk(
        f"mount -o remount,ro {tmp_path / 'disk'}; {' '.join(COMMAND)} {ask}; echo code $?",
        "size=10m", tmp_path,
    )  # fmt: skip
    assert "cannot write the run folder 'run': read-only file system" in said
    assert "code 2" in said


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


def test_what_is_told_of_a_run_under_way_is_of_whole_epochs(tmp_path):
    """Groups may be at different epochs; averages are over those that all have completed."""
    _stopped(tmp_path / "run", 110, checkpoint_every=0)
    run = Run.open(tmp_path / "run")
    steps = run.traces["steps"]
    done = int((steps > 0).all(1).sum())
    assert run.summary().epochs_done == done
    assert {one.epoch for one in run.samples} <= set(range(done))
