"""A run folder that was changed after its run began: noticed, named, and never followed."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskov import Metropolis, Norm, RunError, Schedule, resume, sample
from maskov.errors import Interrupted
from mutations import examples
from odd_workers import files
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
SETTINGS = {"chains": 4, "length": (4, 6), "seed": 1, "thin": 1, "resident": 2}
# What a run adds to its manifest on the way.
ADDED = ("precision_check", "stopped_at")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """A run that was stopped on its way, and the same run to its end."""
    home = tmp_path_factory.mktemp("runs")
    for name, looks in (("stopped", 60), ("whole", 10**9)):
        left = iter(range(10**9))
        try:
            sample(
                MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=home / name,
                stop=lambda left=left, looks=looks: next(left) > looks, checkpoint_every=0,
                **SETTINGS,
            )  # fmt: skip
        except Interrupted:
            assert name == "stopped"
    return home / "stopped", home / "whole"


@pytest.fixture
def copy(runs, tmp_path) -> Path:
    shutil.copytree(runs[0], tmp_path / "copy")
    return tmp_path / "copy"


def _leaves(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(data, dict) and data:
        return [leaf for key, value in data.items() for leaf in _leaves(value, (*path, key))]
    return [path]


def _other(value: Any, draw) -> Any:
    """Return another value of the same kind where there is one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw(st.integers(0, 10).filter(lambda one: one != value))
    if isinstance(value, float):
        return draw(st.sampled_from([0.25, 0.5, 1.5]).filter(lambda one: one != value))
    if isinstance(value, str):
        return draw(
            st.sampled_from(["norm", "raw", "cpu", value + "x"]).filter(lambda x: x != value)
        )
    if isinstance(value, list):
        return [*value, "more"] if value and isinstance(value[0], str) else value[::-1]
    return draw(st.sampled_from([1, "x"]))


def test_an_unchanged_copy_goes_on_to_the_same_bytes(runs, copy):
    assert not resume(copy, MODEL).damaged
    assert files(copy) == files(runs[1])


@examples(60)
@given(data=st.data())
def test_a_field_of_the_manifest_that_was_changed_is_named(data, runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(runs[data.draw(st.integers(0, 1))], copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    leaves = [leaf for leaf in _leaves(manifest) if leaf[0] not in ADDED]
    leaf = data.draw(st.sampled_from(leaves))
    inner = manifest
    for key in leaf[:-1]:
        inner = inner[key]
    before = inner[leaf[-1]]
    inner[leaf[-1]] = _other(before, data.draw)
    if inner[leaf[-1]] == before:
        return
    (copy / "manifest.json").write_text(json.dumps(manifest))
    kept = files(copy)
    with pytest.raises(RunError) as refused:
        resume(copy, MODEL, stop=lambda: pytest.fail("it went on"))
    told = str(refused.value)
    assert "\n" not in told
    # A value that cannot be is refused when it is read, perhaps by what it contradicts.
    impossible = "another version" in told or re.search(r"is damaged: .*'[\w.]+'", told)
    assert impossible or f"'{'.'.join(leaf)}' is not what it was" in told
    assert files(copy) == kept


@pytest.mark.parametrize("finished", [False, True])
def test_samples_in_another_order_are_drawn_again(finished, runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs[int(finished)], copy)
    lines = (copy / "samples.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    lines[0], lines[1] = lines[1], lines[0]
    (copy / "samples.jsonl").write_bytes(b"".join(lines))
    run = resume(copy, MODEL)
    assert run.damaged == [copy / "samples.jsonl"]
    assert files(copy) == files(runs[1])


def test_one_letter_of_the_samples_is_enough(runs, copy):
    content = bytearray((copy / "samples.jsonl").read_bytes())
    content[content.index(b'"text"') + 10] ^= 1
    (copy / "samples.jsonl").write_bytes(content)
    assert resume(copy, MODEL).damaged == [copy / "samples.jsonl"]
    assert files(copy) == files(runs[1])


@pytest.mark.parametrize("name", ["samples.jsonl", "traces/steps.npy", "manifest.json"])
def test_a_hard_link_is_not_written_through(name, copy, tmp_path):
    outside = tmp_path / "outside"
    shutil.copy(copy / name, outside)
    (copy / name).unlink()
    os.link(outside, copy / name)
    before = outside.read_bytes()
    with pytest.raises(RunError, match="hard link"):
        resume(copy, MODEL)
    assert outside.read_bytes() == before


LEFT = ["traces/energy_raw.npy", "manifest.json.tmp", "samples.jsonl", "lock", "traces"]


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symlink", "hard link"])
@pytest.mark.parametrize("name", LEFT)
def test_a_new_run_writes_through_no_link_of_what_was_left(name, link, runs, tmp_path):
    """In a folder that looks like one whose run was killed before it began."""
    left, outside = tmp_path / "left", tmp_path / "outside"
    (left / "traces").mkdir(parents=True)
    if name == "traces":
        if link is os.link:
            return
        (left / "traces").rmdir()
        shutil.copytree(runs[1] / "traces", outside)
    else:
        outside.write_bytes(b"" if name == "samples.jsonl" else b"mine")
    link(outside, left / name)
    before = {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()}
    with pytest.raises(RunError, match="link"):
        sample(MODEL, Metropolis(Norm()), Schedule(epochs=6), out=left, **SETTINGS)
    assert before == {path: path.read_bytes() for path in before}


def test_the_lock_of_a_finished_run_creates_nothing_elsewhere(runs, tmp_path):
    copy = Path(shutil.copytree(runs[1], tmp_path / "copy"))
    (copy / "lock").unlink()
    (copy / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="lock' is a link"):
        resume(copy, MODEL)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["traces/steps.npy", "traces", "checkpoints", "samples.jsonl"])
def test_a_link_made_while_the_run_is_on_is_not_written_through(name, runs, tmp_path):
    folder, outside, left = tmp_path / "run", tmp_path / "outside", iter(range(10**9))

    def stop() -> bool:
        if next(left) == 40:
            (folder / name).rename(outside)
            (folder / name).symlink_to(outside)
            held.update({path: path.read_bytes() for path in outside.rglob("*")})
        return False

    held: dict[Path, bytes] = {}
    with pytest.raises(RunError, match="link"):
        sample(
            MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=folder, stop=stop,
            checkpoint_every=0, **SETTINGS,
        )  # fmt: skip
    assert held == {path: path.read_bytes() for path in outside.rglob("*")}


def test_a_run_folder_that_is_itself_a_link_is_the_users_choice(runs, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    sample(
        MODEL, Metropolis(Norm()), Schedule(epochs=6, burn_in=1), out=tmp_path / "run", **SETTINGS
    )
    assert files(tmp_path / "disk") == files(runs[1])


def test_a_link_in_place_of_the_traces_is_refused_by_name(copy, tmp_path):
    shutil.move(copy / "traces", tmp_path / "elsewhere")
    (copy / "traces").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"traces' is a link"):
        resume(copy, MODEL)


def test_without_checkpoints_a_run_starts_from_its_beginning(runs, copy):
    shutil.rmtree(copy / "checkpoints")
    resume(copy, MODEL)
    assert files(copy) == files(runs[1])
