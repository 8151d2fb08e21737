"""Traces that were changed after they were written: noticed, named, and made again."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from maskov import Metropolis, Norm, Run, RunError, Schedule, Site, resume, sample
from maskov.cli import main
from maskov.config import ModelSource
from maskov.energies.lengths import Length
from maskov.errors import Interrupted
from maskov.moves import Resize
from maskov.runs.state import EXPERTS, REPLICAS
from maskov.runs.store import TRACES, in_words
from odd_workers import files
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
FAST = ("energy_raw", "rejected")
NORM, SITE = Norm(), Site()
SETTINGS = {"chains": 4, "length": (3, 5), "thin": 1, "resident": 2, "checkpoint_every": 0}


def _run(folder: Path, looks: int = 10**9, seed: int = 1, energy=NORM, move=SITE, **more) -> int:
    """Run until it is asked to stop, which it asks for so many times; return how often it did."""
    left = count()
    sample(
        MODEL, Metropolis(energy, move), Schedule(epochs=6, burn_in=1), out=folder, seed=seed,
        stop=lambda: next(left) > looks, **SETTINGS | more,
    )  # fmt: skip
    return next(left)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A run that was stopped, the same to its end, another one; and their model."""
    home = tmp_path_factory.mktemp("runs")
    MODEL.network.save_pretrained(home / "model")
    MODEL.tokenizer.save_pretrained(home / "model")
    source = ModelSource(str(home / "model"))
    with pytest.raises(Interrupted):
        _run(home / "stopped", 70, source=source)
    _run(home / "whole", source=source)
    _run(home / "other", seed=2, source=source)
    return {name: home / name for name in ("stopped", "whole", "other")}


@pytest.fixture
def stopped(runs, tmp_path) -> Path:
    return Path(shutil.copytree(runs["stopped"], tmp_path / "copy"))


@pytest.fixture
def whole(runs, tmp_path) -> Path:
    return Path(shutil.copytree(runs["whole"], tmp_path / "copy"))


def _flip(folder: Path, name: str, epoch: int, chain: int) -> None:
    """Change one value by as little as its kind allows."""
    path = folder / "traces" / f"{name}.npy"
    trace = np.load(path)
    raw = trace.view(np.uint8).reshape(*trace.shape[:2], -1)
    raw[epoch, chain, 0] ^= 1
    np.save(path, trace)


# Traces that only some runs have, and what makes a run have them.
RARE = {
    **{name: {"energy": Norm() + 0.1 * Length(4, 2)} for name in EXPERTS},
    **{name: {"replicas": 2, "ladder": (1.0, 0.7), "resident": 4} for name in REPLICAS},
    "sizes": {"move": Resize()},
}


@pytest.mark.parametrize("name", [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(TRACES.keys() - RARE.keys())
])  # fmt: skip
def test_one_bit_of_a_trace_of_a_stopped_run_is_noticed_and_mended(name, runs, stopped):
    _flip(stopped, name, epoch=0, chain=3)
    _check_mended(stopped, runs["whole"], name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RARE))
def test_so_is_one_of_a_trace_that_only_some_runs_have(name, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    looks = _run(whole, **RARE[name])
    with pytest.raises(Interrupted):  # in the last epochs of the last chains
        _run(stopped, looks * 9 // 10, **RARE[name])
    _flip(stopped, name, epoch=0, chain=3)
    _check_mended(stopped, whole, name)


def _check_mended(stopped: Path, whole: Path, name: str) -> None:
    run = resume(stopped, MODEL)
    assert stopped / "traces" / f"{name}.npy" in run.damaged
    (note,) = run.recovered
    assert f"traces/{name}.npy in epoch 1 does not fit the run of the chains 2-3" in note
    assert "start again from their beginning" in note
    assert files(stopped) == files(whole)
    assert run.finished


@pytest.mark.parametrize("name", [pytest.param("energy_raw", marks=pytest.mark.slow), "steps"])
def test_one_bit_of_a_trace_of_a_finished_run_is_noticed_and_mended(name, runs, whole):
    for epoch, chain in ((1, 0), (2, 3), (4, 1)):
        _flip(whole, name, epoch, chain)
    note = Run.open(whole).diagnose().notes[0]
    assert f"traces/{name}.npy in epochs 2-3 and 5 does not fit the run" in note
    assert f"`maskov resume {whole}`" in note
    assert not Run.open(whole).finished
    run = resume(whole, MODEL)
    assert whole / "traces" / f"{name}.npy" in run.damaged
    assert ["start again from their beginning" in note for note in run.recovered] == [True, True]
    assert files(whole) == files(runs["whole"])
    assert run.finished
    assert not any("does not fit" in note for note in run.diagnose().notes)


def test_an_unchanged_run_has_nothing_to_say(runs, stopped):
    assert Run.open(runs["whole"]).store.damage_note() is None
    assert Run.open(stopped).store.damage_note() is None
    run = resume(stopped, MODEL)
    assert (run.damaged, run.recovered) == ([], [])


@pytest.mark.parametrize("sums", [False, True], ids=["traces", "traces and their checksums"])
def test_traces_of_another_run_do_not_fit(sums, runs, stopped):
    shutil.rmtree(stopped / "traces")
    shutil.copytree(runs["other"] / "traces", stopped / "traces")
    if sums:
        shutil.copy(runs["other"] / "checksums.npy", stopped / "checksums.npy")
    run = resume(stopped, MODEL)
    assert {file.parent.name for file in run.damaged} == {"checkpoints", "traces"}
    assert files(stopped) == files(runs["whole"])


@pytest.mark.parametrize("which", ["stopped", pytest.param("whole", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["traces/energy_norm.npy", "traces/tokens.npy", "checksums.npy"])
def test_what_is_missing_is_made_again(which, name, runs, tmp_path):
    copy = Path(shutil.copytree(runs[which], tmp_path / "copy"))
    (copy / name).unlink()
    if name == "traces/energy_norm.npy":
        with pytest.raises(RunError, match=r"cannot be read: .*`maskov resume .*` makes it again"):
            Run.open(copy).summary()
    run = resume(copy, MODEL)
    assert run.recovered
    assert files(copy) == files(runs["whole"])
    assert run.finished


@pytest.mark.parametrize("which", ["stopped", "whole"])
@pytest.mark.parametrize("name", ["traces/energy_raw.npy", "checksums.npy", "samples.jsonl"])
def test_bytes_after_the_end_shift_nothing(which, name, runs, tmp_path):
    copy = Path(shutil.copytree(runs[which], tmp_path / "copy"))
    with (copy / name).open("ab") as file:
        file.write(b"extra")
    if name.startswith("traces"):
        with pytest.raises(RunError, match=r"has 5 bytes too many; remove energy_raw\.npy"):
            resume(copy, MODEL)
        (copy / name).unlink()
    run = resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])
    assert run.finished
    assert run.samples


def test_a_trace_that_grows_while_the_run_is_on_is_not_written(runs, tmp_path):
    folder, left = tmp_path / "run", count()

    def stop() -> bool:
        if next(left) == 40:
            with (folder / "traces" / "energy_raw.npy").open("ab") as file:
                file.write(b"extra")
        return False

    with pytest.raises(RunError, match=r"energy_raw\.npy has 5 bytes too many"):
        sample(
            MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=folder, seed=1, stop=stop,
            **SETTINGS,
        )  # fmt: skip
    (folder / "traces" / "energy_raw.npy").unlink()
    resume(folder, MODEL)
    assert files(folder) == files(runs["whole"])


def test_stopped_again_after_it_started_over_it_does_not_start_over_again(runs, whole):
    _flip(whole, "energy_raw", 1, 0)
    samples = whole / "samples.jsonl"
    size, seen = samples.stat().st_size, []

    def stop() -> bool:
        seen.append(samples.stat().st_size)
        return min(seen) < seen[-1] < size

    with pytest.raises(Interrupted):
        resume(whole, MODEL, stop=stop, checkpoint_every=0)
    assert 0 < Run.open(whole).store.closed < 6
    assert not resume(whole, MODEL).recovered
    assert files(whole) == files(runs["whole"])


def _damage_samples(folder: Path) -> str:
    lines = (folder / "samples.jsonl").read_text().splitlines(keepends=True)
    (folder / "samples.jsonl").write_text("".join(lines[:-1]))
    return "samples.jsonl was damaged; it is written again"


def _damage_trace(folder: Path) -> str:
    _flip(folder, "energy_raw", 0, 0)
    return "traces/energy_raw.npy in epoch 1 does not fit the run of the chains 0-1; these start"


def _damage_checkpoint(folder: Path) -> str:
    file = sorted((folder / "checkpoints").glob("00000-*"))[-1]
    file.write_bytes(file.read_bytes()[:-1])
    return f"{file.name} was damaged; its chains go on from an earlier one"


def _damage_checkpoints(folder: Path) -> str:
    for file in (folder / "checkpoints").glob("00001-*"):
        file.write_bytes(b"")
    return "was damaged; its chains start again from their beginning"


@pytest.mark.parametrize(
    ("damage", "quiet"),
    [(_damage_samples, False), (_damage_samples, True), (_damage_trace, True),
     (_damage_trace, False), (_damage_checkpoint, True), (_damage_checkpoints, True)],
)  # fmt: skip
def test_the_command_says_what_became_of_it(damage, quiet, stopped, capfd):
    expected = damage(stopped)
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(stopped), "--json", *["--quiet"] * quiet])
    out, err = capfd.readouterr()
    assert not ended.value.code, err
    assert err.count(expected) == 1, err
    assert len([json.loads(line) for line in out.splitlines()]) == 5 * 4


def test_diagnose_names_the_trace_and_the_command(whole, capfd):
    _flip(whole, "accepted", 3, 2)
    with pytest.raises(SystemExit):
        main(["diagnose", str(whole)])
    out = capfd.readouterr().out
    assert "note: traces/accepted.npy in epoch 4 does not fit the run" in out
    assert f"maskov resume {whole}" in out


def test_checkpoints_removed_while_the_run_is_on_are_missed_by_nobody(runs, tmp_path):
    folder, left = tmp_path / "run", iter(range(10**9))

    def stop() -> bool:
        look = next(left)
        if look in (20, 40):
            shutil.rmtree(folder / "checkpoints")
        return look > 60

    with pytest.raises(Interrupted):
        sample(
            MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=folder, seed=1, stop=stop,
            source=Run.open(runs["whole"]).manifest.config.model.source, **SETTINGS,
        )  # fmt: skip
    assert list((folder / "checkpoints").iterdir())
    assert not resume(folder, MODEL).recovered
    assert files(folder) == files(runs["whole"])


def test_a_file_in_place_of_the_checkpoints_is_refused(stopped):
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "checkpoints").touch()
    with pytest.raises(RunError, match="is no folder"):
        resume(stopped, MODEL)


@pytest.mark.parametrize(
    ("epochs", "words"),
    [([0], "epoch 1"), ([1, 2, 3], "epochs 2-4"), ([6, 1, 2, 8], "epochs 2-3, 7 and 9")],
)
def test_epochs_in_words(epochs, words):
    assert in_words(epochs) == words
