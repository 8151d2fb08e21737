"""Whatever becomes of the files of a run: it goes on to the same bytes, or says why not.

Each file removed, emptied, cut, or taken from another run; each field of the configuration changed;
a folder copied while its run is on; a model changed meanwhile.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import maskov
from maskov import MaskovError, Metropolis, Norm, RunError, Schedule, resume, sample
from maskov.config import ModelSource
from maskov.errors import Interrupted
from odd_workers import files
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
SETTINGS = {"chains": 4, "length": (3, 5), "thin": 1, "resident": 2, "checkpoint_every": 0}
FILES = [
    "manifest.json", "samples.jsonl", "checksums.npy", "lock", "traces/steps.npy",
    "traces/energy_target.npy", "traces/rejected.npy", "newest checkpoint", "older checkpoint",
]  # fmt: skip


def slow(value: Any) -> Any:
    """Return a parameter of the slow tests."""
    return pytest.param(value, marks=pytest.mark.slow)


def _run(folder: Path, looks: int = 10**9, seed: int = 1, **more) -> None:
    left = iter(range(10**9))
    sample(
        MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=folder, seed=seed,
        stop=lambda: next(left) > looks, **SETTINGS | more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("runs")
    for name, seed in (("stopped", 1), ("other", 2)):
        with pytest.raises(Interrupted):
            _run(home / name, 70, seed)
    _run(home / "whole")
    return {name: home / name for name in ("stopped", "whole", "other")}


def _file(folder: Path, name: str) -> Path:
    if "checkpoint" in name:
        return sorted((folder / "checkpoints").glob("00000-*"))[-1 if "newest" in name else 0]
    return folder / name


def _removed(path: Path, other: Path) -> None:
    path.unlink()


def _emptied(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path, other: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _swapped(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


CHANGES = [_removed, _emptied, _cut, _swapped]
# What is refused, and what the refusal says; everything else goes on to the same bytes.
REFUSED = {
    ("manifest.json", _removed): "no readable manifest",
    ("manifest.json", _emptied): "no readable manifest",
    ("manifest.json", _cut): "no readable manifest",
    ("manifest.json", _swapped): r"'\w+(\.\w+)*' is not what it was",
    ("newest checkpoint", _swapped): r"'\w+(\.\w+)*' is not what it was",
    ("older checkpoint", _swapped): r"'\w+(\.\w+)*' is not what it was",
    **{(f"traces/{name}.npy", change): "cannot be read: .*remove"
       for name in ("steps", "energy_target", "rejected") for change in (_emptied, _cut)},
}  # fmt: skip


def _cases() -> list[Any]:
    """Every file with every change; most of them only in the slow tests."""
    fast = [("manifest.json", _swapped), ("samples.jsonl", _swapped), ("checksums.npy", _emptied),
            ("newest checkpoint", _swapped), ("newest checkpoint", _cut), ("lock", _removed),
            ("traces/steps.npy", _cut), ("traces/rejected.npy", _removed)]  # fmt: skip
    return [
        pytest.param(name, change, id=name + change.__name__.replace("_", " "),
                     marks=() if (name, change) in fast else pytest.mark.slow)
        for name in FILES for change in CHANGES
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), _cases())
def test_a_changed_file_changes_no_result(name, change, runs, tmp_path):
    copy = Path(shutil.copytree(runs["stopped"], tmp_path / "copy"))
    change(_file(copy, name), _file(runs["other"], name))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    if (name, change) in REFUSED:
        with pytest.raises(RunError, match=REFUSED[name, change]):
            resume(copy, MODEL)
        (copy / "lock").touch()
        assert all(path.read_bytes() == content for path, content in before.items())
        return
    run = resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])
    assert run.finished
    # An older checkpoint is only missed where the newest is gone, too.
    unnoticed = name in ("lock", "older checkpoint") or (name, change) == (
        "newest checkpoint", _removed
    )  # fmt: skip
    assert bool(run.recovered) is not unnoticed


def test_what_a_refusal_advises_helps(runs, tmp_path):
    copy = Path(shutil.copytree(runs["stopped"], tmp_path / "copy"))
    (copy / "traces" / "steps.npy").write_bytes(b"")
    with pytest.raises(RunError, match=r"remove steps\.npy"):
        resume(copy, MODEL)
    (copy / "traces" / "steps.npy").unlink()
    resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])


# Every field of the configuration, one at a time.


def _leaves(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(data, dict) and data:
        return [leaf for key, value in data.items() for leaf in _leaves(value, (*path, key))]
    return [path]


def _others(value: Any) -> list[Any]:
    """Return other values: of the same kind, of other kinds, and out of bounds."""
    near: list[Any] = []
    if isinstance(value, bool):
        near = [not value]
    elif isinstance(value, int | float):
        near = [value + 1, value * 2 + 1, -1]
    elif isinstance(value, str):
        near = [value + "x", ""]
    elif isinstance(value, list):
        near = [value[::-1], [*value, *value], []]
    return [one for one in [*near, None, 10**30, {"part": "mh"}] if one != value]


@pytest.mark.parametrize("which", ["stopped", slow("whole")])
def test_every_field_of_the_configuration_is_held_to(which, runs, tmp_path):
    """With the checkpoints there, any change is named; a run never goes on with another one."""
    copy = Path(shutil.copytree(runs[which], tmp_path / "copy"))
    manifest = json.loads((copy / "manifest.json").read_text())
    kept, tried = files(copy), 0
    for leaf in _leaves(manifest["config"]):
        inner = manifest["config"]
        for key in leaf[:-1]:
            inner = inner[key]
        before = inner[leaf[-1]]
        for other in _others(before):
            inner[leaf[-1]] = other
            (copy / "manifest.json").write_text(json.dumps(manifest))
            with pytest.raises(RunError, match=r"\A.*'[\w.]+'.*\Z"):
                resume(copy, MODEL, stop=lambda: pytest.fail("it went on"))
            tried += 1
        inner[leaf[-1]] = before
    assert tried > 100
    assert files(copy) == kept


# Folders and models that change while a run is on.


@pytest.mark.parametrize("at", [slow(15), 40, slow(65)])
def test_a_copy_made_while_the_run_is_on_goes_on_or_is_refused(at, runs, tmp_path):
    """File by file, between two batches, as `cp -r` would find it."""
    folder, copy, left = tmp_path / "run", tmp_path / "copy", iter(range(10**9))

    def stop() -> bool:
        if next(left) == at:
            shutil.copytree(folder, copy)
        return False

    sample(
        MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=folder, seed=1, stop=stop,
        **SETTINGS,
    )  # fmt: skip
    assert files(folder) == files(runs["whole"])
    resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])


def test_a_slow_copy_of_a_running_folder_goes_on(runs, tmp_path):
    """Its files are of different moments: each of them is as whole as the next."""
    folder, copy, left = tmp_path / "run", tmp_path / "copy", iter(range(10**9))

    def stop() -> bool:
        look = next(left)
        if look == 15:
            shutil.copytree(folder, copy)
        if look == 40:
            shutil.copytree(folder / "checkpoints", copy / "checkpoints", dirs_exist_ok=True)
        if look == 65:
            shutil.copy(folder / "samples.jsonl", copy / "samples.jsonl")
        return False

    sample(
        MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=folder, seed=1, stop=stop,
        **SETTINGS,
    )  # fmt: skip
    resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])


@pytest.mark.parametrize("name", ["tokenizer.json", slow("model.safetensors"), slow("config.json")])
def test_a_model_changed_while_a_run_is_on_is_noticed_when_it_is_resumed(name, tmp_path):
    """The run itself has its weights in memory."""
    home = tmp_path / "model"
    MODEL.network.save_pretrained(home)
    MODEL.tokenizer.save_pretrained(home)

    def change() -> None:
        path = home / name
        if name == "model.safetensors":
            weights = load_file(path)
            weights["cls.predictions.bias"][0] += 1e-4
            save_file(weights, path, metadata={"format": "pt"})
        elif name == "tokenizer.json":
            path.write_text(path.read_text().replace('"red"', '"pink"'))
        else:
            path.write_text(path.read_text().replace('"gelu"', '"relu"'))

    left = iter(range(10**9))

    def stop() -> bool:
        look = next(left)
        if look == 20:
            change()
        return look > 40

    with pytest.raises(Interrupted):
        sample(
            maskov.load(home, "cpu"), Metropolis(Norm()), Schedule(epochs=6), out=tmp_path / "run",
            source=ModelSource(str(home)), stop=stop, **SETTINGS,
        )  # fmt: skip
    kept = files(tmp_path / "run")
    with pytest.raises(RunError, match="not the one this run began with"):
        resume(tmp_path / "run")
    assert files(tmp_path / "run") == kept


# The machine.


@pytest.mark.parametrize("call", [slow(3), 9, slow(20)])
def test_a_disk_that_is_full_at_any_write_is_one_sentence(call, runs, tmp_path, monkeypatch):
    """With room again, the run goes on to the same bytes."""
    copy = Path(shutil.copytree(runs["stopped"], tmp_path / "copy"))
    left = iter(range(10**9))
    sync = os.fsync

    def full(handle: int) -> None:
        if next(left) >= call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(MaskovError, match=r"\Acannot write .*: no space left on device\. .*\Z"):
            resume(copy, MODEL, checkpoint_every=0)
    resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])


def test_files_from_the_future_are_like_any_others(runs, tmp_path):
    """A clock that was set back leaves files that are newer than now."""
    copy = Path(shutil.copytree(runs["stopped"], tmp_path / "copy"))
    for number, path in enumerate(sorted(copy.rglob("*"), reverse=True)):
        os.utime(path, (2**32 - number, 2**32 - number))
    assert not resume(copy, MODEL).recovered
    assert files(copy) == files(runs["whole"])
