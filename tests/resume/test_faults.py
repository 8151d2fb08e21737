"""What can go wrong on a machine, and what becomes of a run: docs/reference/faults.md."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest
import torch

import maskov
from forked import Forked
from maskov import Gibbs, Metropolis, Norm, Raw, Run, Schedule, resume, sample
from maskov.errors import Interrupted, ModelError, RunError
from maskov.execution.recorded import RecordedSites
from maskov.moves import Site
from maskov.runs import manifest
from maskov.runs.files import locked
from odd_workers import files
from small import tiny_bert

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


def _stopped(folder: Path, looks: int = 60, kernel=KERNEL, **more) -> list[Path]:
    """Stop a run on its way; return its checkpoints, which are two of each group."""
    left = iter(range(10**6))
    more = {"checkpoint_every": 0} | more
    with pytest.raises(Interrupted):
        sample(MODEL, kernel, out=folder, stop=lambda: next(left) > looks, **SETTINGS, **more)
    return sorted((folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    sample(MODEL, KERNEL, out=folder, **SETTINGS)
    return folder


# Kills and signals. Checkpoints at every step, so that many kills fall between or into writes.
ASK = "sample --model untrained --moves site --chains 4 --length 6:10 --thin 4 --seed 9 --quiet"
CHECKPOINTS = 7  # an epoch, at least


def _newest(folder: Path) -> int:
    """Return the number of the newest checkpoint, −1 before there is one."""
    return max(
        (int(file.stem.split("-")[1]) for file in folder.glob("checkpoints/*.checkpoint")),
        default=-1,
    )


def _kill_after(words: str, folder: Path, checkpoints: int, moment: float) -> bool:
    """Start the command and kill -9 it so many checkpoints on, and a moment later."""
    first = _newest(folder)
    process = Forked(words.split())
    while process.poll() is None and _newest(folder) < first + checkpoints:
        time.sleep(0.001)
    time.sleep(moment)
    process.send(signal.SIGKILL)
    return process.end()[0] == -signal.SIGKILL


def _killed_and_resumed(tmp_path: Path, epochs: int, kills: int, seed: int) -> None:
    ask = f"{ASK} --epochs {epochs}"
    assert Forked(f"{ask} --out {tmp_path / 'whole'}".split()).end()[0] == 0
    folder, moments, killed = tmp_path / "killed", random.Random(seed), 0
    for _ in range(kills):
        begun = (folder / "manifest.json").exists()
        words = f"resume {folder} --quiet" if begun else f"{ask} --out {folder}"
        wait = moments.randint(0, CHECKPOINTS * epochs // kills), moments.uniform(0, 0.02)
        killed += _kill_after(f"{words} --checkpoint-every 0", folder, *wait)
    assert killed == kills
    words = f"resume {folder}" if (folder / "manifest.json").exists() else f"{ask} --out {folder}"
    assert Forked(words.split()).end()[0] == 0
    assert files(folder) == files(tmp_path / "whole")


def test_killed_and_resumed_is_the_same_to_the_byte(tmp_path):
    """Kill -9, which no handler sees, at moments that fall anywhere in a step or a write."""
    _killed_and_resumed(tmp_path, epochs=8, kills=2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_many_times_and_resumed_is_the_same_to_the_byte(tmp_path, seed):
    _killed_and_resumed(tmp_path, epochs=40, kills=10, seed=seed)


def _is_tuned(folder: Path) -> bool:
    """Whether a run has chosen what its kernel leaves open, before its first epoch."""
    file = folder / "manifest.json"
    return file.exists() and json.loads(file.read_text())["tuning"] is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(number, tmp_path):
    folder = tmp_path / "run"
    # Groups that wait for each other, so that the folder is there long before a checkpoint is due.
    words = "sample --model untrained --epochs 3000 --chains 2 --resident 1 --length 5"
    process = Forked([*words.split(), "--out", str(folder)])
    deadline = time.monotonic() + 60
    while not _is_tuned(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(folder.glob("checkpoints/*.checkpoint"))
    process.send(number)
    code, out, err = process.end()
    assert code == 128 + number
    assert f"maskov resume {folder}" in err
    assert "Traceback" not in err
    assert out == ""
    assert list(folder.glob("checkpoints/*.checkpoint"))


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


# Damage.


@pytest.mark.parametrize("change", ["cut", "removed"])
@pytest.mark.parametrize("group", ["00000", "00001", "*"])
def test_a_group_without_a_whole_checkpoint_goes_the_way_again(change, group, tmp_path, whole):
    """Alone: the other groups stay where they are, and samples that were written are not twice."""
    _stopped(tmp_path / "run", 90)
    lost = sorted((tmp_path / "run" / "checkpoints").glob(f"{group}-*"))
    assert lost
    for file in lost:
        if change == "removed":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1])
    run = resume(tmp_path / "run", MODEL)
    assert sorted(run.damaged) == (lost if change == "cut" else [])
    assert files(tmp_path / "run") == files(whole)


@pytest.mark.parametrize("most", [2**24, 1], ids=["tokens traced", "tokens kept"])
def test_samples_that_were_cut_short_are_written_again(most, tmp_path, monkeypatch):
    """From the arrays: no chain moves for it."""
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", most)
    folder = tmp_path / "run"
    sample(MODEL, KERNEL, out=folder, **SETTINGS)
    expected = files(folder)
    (folder / "samples.jsonl").write_bytes(b"{")
    with pytest.raises(RunError, match="damaged"):
        Run.open(folder).samples  # noqa: B018
    run = resume(folder, MODEL, stop=lambda: pytest.fail("it went on"))
    assert run.damaged == [folder / "samples.jsonl"]
    assert files(folder) == expected
    # A finished run is left as it is, and needs no model.
    assert resume(folder).samples == run.samples
    assert files(folder) == expected


def test_a_run_too_large_to_trace_its_tokens_survives_a_stop(tmp_path, monkeypatch):
    samples = sample(MODEL, KERNEL, **SETTINGS).samples
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", 1)
    assert sample(MODEL, KERNEL, **SETTINGS).samples == samples
    folder = tmp_path / "run"
    _stopped(folder)
    assert not resume(folder, MODEL).damaged
    assert Run.open(folder).samples == samples
    assert "tokens" not in Run.open(folder).traces
    content = bytearray((folder / "tokens.npy").read_bytes())
    content[-1] ^= 1
    (folder / "tokens.npy").write_bytes(content)
    run = resume(folder, MODEL)
    assert folder / "tokens.npy" in run.damaged
    assert run.samples == samples


# Models that break down.


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


@pytest.mark.parametrize("when", range(5, 21, 5))
def test_a_stop_right_after_a_broken_batch_does_not_hide_it(tmp_path, whole, when):
    """What a broken batch said is never saved: the run goes on as if it had not happened."""
    broken, calls = tiny_bert(WORDS, torch.float32), []

    def sometimes(tokens, lengths, place, source):
        calls.append(1)
        answer = type(broken).hidden_at(broken, tokens, lengths, place, source)
        return answer * float("nan") if len(calls) == when else answer

    broken.hidden_at = sometimes
    with pytest.raises((ModelError, Interrupted)):
        sample(
            broken, KERNEL, out=tmp_path / "run", stop=lambda: len(calls) >= when,
            checkpoint_every=0, **SETTINGS,
        )  # fmt: skip
    if (tmp_path / "run" / "manifest.json").exists():
        resume(tmp_path / "run", MODEL)
        assert files(tmp_path / "run") == files(whole)


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
    monkeypatch.setattr("maskov.runs.task_runner.sampler_for", lambda *_: RecordedSites)
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


# Parts that must be built again.


def test_a_run_goes_on_where_it_began(tmp_path, monkeypatch):
    _stopped(tmp_path / "run", 20)
    asked = []
    monkeypatch.setattr(manifest, "load", lambda name, device, *rest: asked.append(device) or MODEL)
    resume(tmp_path / "run")
    assert asked == ["cpu"]


@dataclass(frozen=True)
class Other(Metropolis):
    """A kernel that is not ours."""


@dataclass(frozen=True)
class OtherProposal(maskov.MaskedConditional):
    """A proposal that is not ours."""


@pytest.mark.parametrize("kernel", [Other(Raw()), Metropolis(Raw(), Site(OtherProposal()))])
def test_parts_that_are_not_ours_are_built_again_only_if_they_are_trusted(kernel, tmp_path):
    sample(MODEL, kernel, out=tmp_path / "whole", **SETTINGS)
    _stopped(tmp_path / "run", 20, kernel)
    with pytest.raises(RunError, match=r"test_faults:Other.*--trust-parts"):
        resume(tmp_path / "run", MODEL)
    resume(tmp_path / "run", MODEL, trust_parts=True)
    assert files(tmp_path / "run") == files(tmp_path / "whole")


# Folders, disks and clocks.


def test_two_processes_do_not_share_a_run_folder(tmp_path):
    """The second is refused, and the first does not notice."""
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


@pytest.mark.parametrize("name", ["samples.jsonl", "traces"])
def test_files_of_the_user_are_never_taken_for_leftovers(name, tmp_path):
    (tmp_path / name).write_text("precious")
    with pytest.raises(RunError, match="something else"):
        sample(MODEL, Gibbs(), out=tmp_path, **SETTINGS)
    assert (tmp_path / name).read_text() == "precious"


def test_what_a_cut_off_creation_left_behind_can_be_used_again(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "manifest.json.tmp").write_text("{")
    assert len(sample(MODEL, Gibbs(), out=folder, **SETTINGS).samples) == 12


COMMAND = [sys.executable, "-m", "maskov"]


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


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path, whole, monkeypatch):
    wall = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))
    sample(MODEL, KERNEL, out=tmp_path / "run", checkpoint_every=0, **SETTINGS)
    assert files(tmp_path / "run") == files(whole)


def test_what_is_told_of_a_run_under_way_is_of_whole_epochs(tmp_path):
    """Groups may be at different epochs; averages are over those that all have completed."""
    _stopped(tmp_path / "run", 110)
    run = Run.open(tmp_path / "run")
    steps = run.traces["steps"]
    done = int((steps > 0).all(1).sum())
    assert run.summary().epochs_done == done
    assert {one.epoch for one in run.samples} <= set(range(done))
