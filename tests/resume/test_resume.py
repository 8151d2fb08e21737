"""A run that was stopped ends with the bytes of one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import maskov
from forked import Forked
from maskov import (
    DelayedAcceptance,
    Gibbs,
    LinearSchedule,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    RunError,
    Schedule,
    Span,
    Sweep,
)
from maskov.errors import InputError, Interrupted
from maskov.moves import Site
from maskov.runs.store import Store
from small import tiny_bert

KERNELS = {
    "mh": Metropolis(Raw()),
    "mh norm, blocks": Metropolis(Norm(), Site(positions=Sweep("random", 2))),
    "spans and sites": Mixture(
        (Metropolis(Raw()), Metropolis(Raw(), Span(), delayed=DelayedAcceptance(2)))
    ),
    "gibbs": Gibbs(),
    "mask-predict": maskov.mask_predict(6),
}
MODEL = tiny_bert("red green blue white", dtype=maskov.models.scorer.torch.float32)
SETTINGS = {
    "schedule": Schedule(epochs=5, burn_in=1),
    "chains": 4,
    "length": (4, 7),
    "thin": 2,
    "seed": 4,
}


class Breaker:
    """Asks to stop when the engine looks for the n-th time."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def _files(folder: Path) -> dict[str, bytes]:
    kept = [folder / "samples.jsonl", *sorted((folder / "traces").iterdir())]
    return {file.name: file.read_bytes() for file in kept}


@pytest.mark.parametrize("name", KERNELS)
def test_stopped_anywhere_and_resumed_is_the_same_to_the_byte(name, tmp_path):
    _stop_and_resume(name, tmp_path, (3, 20))


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_stopped_at_many_places_and_resumed_is_the_same_to_the_byte(name, tmp_path):
    _stop_and_resume(name, tmp_path, (0, 1, 3, 5, 8, 13, 20, 33, 50))


def _stop_and_resume(name, tmp_path, places):
    kernel = KERNELS[name]
    maskov.sample(MODEL, kernel, out=tmp_path / "whole", **SETTINGS)
    expected = _files(tmp_path / "whole")
    assert expected["samples.jsonl"].count(b"\n") == 8
    # A step of mask-predict is one batch: near the end of its run there is only one more.
    again = 0 if name == "mask-predict" else 2
    for number, at in enumerate(places):
        folder = tmp_path / f"stopped {number}"
        try:
            maskov.sample(MODEL, kernel, out=folder, stop=Breaker(at), **SETTINGS)
        except Interrupted:
            # And once more on the way.
            with pytest.raises(Interrupted):
                maskov.resume(folder, MODEL, stop=Breaker(again))
            assert not maskov.resume(folder, MODEL).damaged
        assert _files(folder) == expected


def test_a_schedule_that_moves_survives_a_stop(tmp_path):
    settings = SETTINGS | {
        "schedule": Schedule(
            6, 1, LinearSchedule(1.0, 0.2, 0.3), LinearSchedule(3.0, 0.5, 1.0), force_accept=2
        )
    }
    kernel = Metropolis(Raw())
    maskov.sample(MODEL, kernel, out=tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        maskov.sample(MODEL, kernel, out=tmp_path / "cut", stop=Breaker(25), **settings)
    assert not maskov.resume(tmp_path / "cut", MODEL).damaged
    assert _files(tmp_path / "cut") == _files(tmp_path / "whole")


# Checkpoints at every step, so that many kills fall between or into writes.
ASK = "sample --model untrained --moves site --chains 4 --length 6:10 --thin 4 --seed 9 --quiet"
OFTEN = "--checkpoint-every 0"
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
        killed += _kill_after(f"{words} {OFTEN}", folder, *wait)
    assert killed == kills
    words = f"resume {folder}" if (folder / "manifest.json").exists() else f"{ask} --out {folder}"
    assert Forked(words.split()).end()[0] == 0
    assert _files(folder) == _files(tmp_path / "whole")


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


def _stop_with_two_checkpoints(folder: Path) -> list[Path]:
    with pytest.raises(Interrupted):
        maskov.sample(
            MODEL, Metropolis(Raw()), out=folder, stop=Breaker(60), checkpoint_every=0, **SETTINGS
        )
    files = sorted((folder / "checkpoints").iterdir())
    assert len(files) == 2
    return files


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_a_damaged_checkpoint_is_recognised_and_the_one_before_it_used(damage, tmp_path):
    maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "whole", **SETTINGS)
    folder = tmp_path / "run"
    newest = _stop_with_two_checkpoints(folder)[-1]
    content = newest.read_bytes()
    middle = len(content) // 2
    newest.write_bytes(
        {
            "truncated": content[:middle],
            "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "empty": b"",
            "foreign": b"something else entirely",
        }[damage]
    )
    run = maskov.resume(folder, MODEL)
    assert run.damaged == [newest]
    assert _files(folder) == _files(tmp_path / "whole")


def test_with_every_checkpoint_damaged_the_run_starts_again(tmp_path):
    maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "whole", **SETTINGS)
    folder = tmp_path / "run"
    for file in _stop_with_two_checkpoints(folder):
        file.write_bytes(b"")
    maskov.resume(folder, MODEL)
    assert _files(folder) == _files(tmp_path / "whole")


@pytest.mark.parametrize("most", [2**24, 1], ids=["tokens traced", "tokens kept"])
def test_samples_that_were_cut_short_are_written_again(most, tmp_path, monkeypatch):
    """From the arrays: no chain moves for it."""
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", most)
    maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "whole", **SETTINGS)
    folder = tmp_path / "run"
    maskov.sample(MODEL, Metropolis(Raw()), out=folder, **SETTINGS)
    (folder / "samples.jsonl").write_bytes(b"{")
    with pytest.raises(RunError, match="damaged"):
        maskov.Run.open(folder).samples  # noqa: B018
    run = maskov.resume(folder, MODEL, stop=lambda: pytest.fail("it went on"))
    assert run.damaged == [folder / "samples.jsonl"]
    assert _files(folder) == _files(tmp_path / "whole")


def test_a_run_too_large_to_trace_its_tokens_survives_a_stop(tmp_path, monkeypatch):
    samples = maskov.sample(MODEL, Metropolis(Raw()), **SETTINGS).samples
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", 1)
    assert maskov.sample(MODEL, Metropolis(Raw()), **SETTINGS).samples == samples
    folder = tmp_path / "run"
    _stop_with_two_checkpoints(folder)
    assert not (folder / "traces" / "tokens.npy").exists()
    assert not maskov.resume(folder, MODEL).damaged
    assert maskov.Run.open(folder).samples == samples
    _flip_kept(folder)
    run = maskov.resume(folder, MODEL)
    assert folder / "traces" / "kept.npy" in run.damaged
    assert run.samples == samples


def _flip_kept(folder: Path) -> None:
    content = bytearray((folder / "traces" / "kept.npy").read_bytes())
    content[-1] ^= 1
    (folder / "traces" / "kept.npy").write_bytes(content)


def test_a_run_goes_on_where_it_began(tmp_path, monkeypatch):
    from maskov.runs import rebuild

    with pytest.raises(Interrupted):
        maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "run", stop=Breaker(20), **SETTINGS)
    asked = []
    monkeypatch.setattr(rebuild, "load", lambda name, device, *rest: asked.append(device) or MODEL)
    maskov.resume(tmp_path / "run")
    assert asked == ["cpu"]


@dataclass(frozen=True)
class Other(Metropolis):
    """A kernel that is not ours."""


@dataclass(frozen=True)
class OtherProposal(maskov.MaskedConditional):
    """A proposal that is not ours."""


@pytest.mark.parametrize("kernel", [Other(Raw()), Metropolis(Raw(), Site(OtherProposal()))])
def test_parts_that_are_not_ours_are_built_again_only_if_they_are_trusted(kernel, tmp_path):
    maskov.sample(MODEL, kernel, out=tmp_path / "whole", **SETTINGS)
    with pytest.raises(Interrupted):
        maskov.sample(MODEL, kernel, out=tmp_path / "run", stop=Breaker(20), **SETTINGS)
    with pytest.raises(RunError, match=r"test_resume:Other.*--trust-parts"):
        maskov.resume(tmp_path / "run", MODEL)
    maskov.resume(tmp_path / "run", MODEL, trust_parts=True)
    assert _files(tmp_path / "run") == _files(tmp_path / "whole")


def test_what_could_not_be_built_again_is_not_stored(tmp_path):
    @dataclass(frozen=True)
    class Local(Metropolis):
        """A kernel that no other process can import."""

    with pytest.raises(InputError, match="make it again"):
        maskov.sample(MODEL, Local(Raw()), out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()
    assert len(maskov.sample(MODEL, Local(Raw()), **SETTINGS).samples) == 8


def test_mask_predict_that_samples_survives_a_stop(tmp_path):
    from maskov.moves import LowestConfidence

    kernel = Gibbs(Site(maskov.MaskedConditional(), LowestConfidence(6)))
    maskov.sample(MODEL, kernel, out=tmp_path / "whole", **SETTINGS)
    with pytest.raises(Interrupted):
        maskov.sample(MODEL, kernel, out=tmp_path / "cut", stop=Breaker(2), **SETTINGS)
    assert not maskov.resume(tmp_path / "cut", MODEL).damaged
    assert _files(tmp_path / "cut") == _files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("manifest.json", b'{"format": 1}'),
        ("manifest.json", b"[]"),
        ("manifest.json", b"{"),
        ("traces/steps.npy", b""),
    ],
)
def test_a_damaged_run_folder_is_one_sentence(file, content, tmp_path):
    maskov.sample(MODEL, Gibbs(), out=tmp_path / "run", **SETTINGS)
    (tmp_path / "run" / file).write_bytes(content)
    with pytest.raises(RunError):
        maskov.Run.open(tmp_path / "run").summary()


@pytest.mark.parametrize("name", ["samples.jsonl", "traces"])
def test_files_of_the_user_are_never_taken_for_leftovers(name, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text("precious")
    with pytest.raises(RunError, match="something else"):
        maskov.sample(MODEL, Gibbs(), out=folder, **SETTINGS)
    assert (folder / name).read_text() == "precious"


def test_a_finished_run_is_left_as_it_is(tmp_path):
    run = maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "run", **SETTINGS)
    before = _files(tmp_path / "run")
    again = maskov.resume(tmp_path / "run")
    assert _files(tmp_path / "run") == before
    assert again.samples == run.samples


def test_a_changed_model_is_refused(tmp_path):
    with pytest.raises(Interrupted):
        maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "run", stop=Breaker(20), **SETTINGS)
    other = tiny_bert("red green blue white", num_hidden_layers=1)
    with pytest.raises(RunError, match="not the one this run began with"):
        maskov.resume(tmp_path / "run", other)


def test_a_folder_in_use_is_refused(tmp_path):
    from maskov.runs.files import locked

    maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "run", **SETTINGS)
    with locked(tmp_path / "run"), pytest.raises(RunError, match="in use"):
        maskov.resume(tmp_path / "run", MODEL)


def test_what_a_cut_off_creation_left_behind_can_be_used_again(tmp_path):
    folder = tmp_path / "run"
    (folder / "traces").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "manifest.json.tmp").write_text("{")
    assert len(maskov.sample(MODEL, Gibbs(), out=folder, **SETTINGS).samples) == 8


def test_a_disk_that_fills_up_is_one_sentence_and_the_run_can_go_on(tmp_path, monkeypatch):
    maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "whole", **SETTINGS)
    folder, sync, calls = tmp_path / "run", os.fsync, []

    def full(handle):
        if (folder / "manifest.json").exists():
            calls.append(handle)
        if len(calls) > 12:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="no space left on device"):
        maskov.sample(MODEL, Metropolis(Raw()), out=folder, checkpoint_every=0, **SETTINGS)
    monkeypatch.setattr(os, "fsync", sync)
    assert not list(folder.rglob("*.tmp"))
    maskov.resume(folder, MODEL)
    assert _files(folder) == _files(tmp_path / "whole")


def test_the_manifest_holds_the_full_signature(tmp_path):
    run = maskov.sample(MODEL, Metropolis(Raw()), out=tmp_path / "run", **SETTINGS)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["model"]["fingerprint"] == MODEL.fingerprint()
    assert manifest["config"]["kernel"]["energy"] == manifest["energy"] == "raw"
    assert manifest["config"]["seed"] == 4
    assert manifest["versions"]["maskov"] == maskov.__version__
    assert "energy:raw" in run.signature
    assert "seed:4" in run.signature
    assert Store.open(tmp_path / "run").manifest == run.manifest
