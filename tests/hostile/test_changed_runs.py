"""Whatever becomes of a run folder: the run goes on to the same bytes, or says why not."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskov import MaskovError, Run, RunError, resume
from maskov.errors import Interrupted
from mutations import unix_socket
from odd_workers import files
from stopped_runs import MODEL, run

NEWEST, OLDER, BEGUN = "newest checkpoint", "older checkpoint", "checkpoints/manifest"


def _file(folder: Path, name: str) -> Path:
    if name in (NEWEST, OLDER):
        return sorted((folder / "checkpoints").glob("00000-*"))[-1 if name == NEWEST else 0]
    return folder / name


def _held(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (folder, *folder.rglob("*")) if path.is_file()}


def _flipped(content: bytes) -> bytes:
    """Change one bit of the first value after the header of an array."""
    place = content.index(b"\n") + 1 if content.startswith(b"\x93NUMPY") else len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def _reordered(content: bytes) -> bytes:
    first, second, *rest = content.splitlines(keepends=True)
    return b"".join([second, first, *rest])


CHANGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "emptied": lambda content, other: b"",
    "cut": lambda content, other: content[: len(content) // 2],
    "swapped": lambda content, other: other,
    "extended": lambda content, other: content + b"extra",
    "flipped": lambda content, other: _flipped(content),
}
FILES = [
    "manifest.json", "samples.jsonl", "lock", "traces.npy", "tokens.npy", NEWEST, OLDER, BEGUN,
]  # fmt: skip
# What is refused, and what the refusal says; everything else goes on to the same bytes.
REFUSED = {
    **{("manifest.json", change): "no readable manifest|is damaged|is not what it was|version"
       for change in ("removed", "emptied", "cut", "extended", "flipped")},
    **{(name, "swapped"): r"'\w+(\.\w+)*' is not what it was" for name in FILES
       if "manifest" in name},
    **{(name, change): "cannot be read: .*remove" for name in FILES if name.endswith("npy")
       for change in ("emptied", "cut")},
    **{(name, "extended"): r"5 bytes too many; remove" for name in FILES if name.endswith("npy")},
}  # fmt: skip
FAST = [("manifest.json", "swapped"), ("samples.jsonl", "swapped"), ("samples.jsonl", "flipped"),
        (NEWEST, "swapped"), (NEWEST, "cut"), (NEWEST, "flipped"), ("lock", "removed"),
        ("traces.npy", "cut"), ("traces.npy", "removed"), ("traces.npy", "swapped"),
        ("traces.npy", "flipped"), ("tokens.npy", "extended")]  # fmt: skip
# A lock holds nothing, an older checkpoint is only missed where the newest is gone, too, and the
# samples of a run that is not over are written again in any case.
UNNOTICED = [("lock", None), (OLDER, None), (NEWEST, "removed"), ("samples.jsonl", None),
             (BEGUN, None)]  # fmt: skip


@pytest.mark.parametrize("which", ["stopped", pytest.param("whole", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "change"), [
    pytest.param(name, change, marks=() if (name, change) in FAST else pytest.mark.slow)
    for name in FILES for change in ["removed", *CHANGES]
    if (name, change) != ("lock", "flipped")
])  # fmt: skip
def test_a_changed_file_changes_no_result(which, name, change, runs, tmp_path):
    copy = Path(shutil.copytree(runs[which], tmp_path / "copy"))
    path = _file(copy, name)
    if change == "removed":
        path.unlink()
    else:
        path.write_bytes(
            CHANGES[change](path.read_bytes(), _file(runs["other"], name).read_bytes())
        )
    before = _held(copy)
    if (name, change) in REFUSED:
        with pytest.raises(RunError, match=REFUSED[name, change]) as refused:
            resume(copy, MODEL)
        assert "\n" not in str(refused.value)
        assert before == {path: path.read_bytes() for path in before}
        if "remove" not in REFUSED[name, change]:
            return
        path.unlink()  # as the refusal advises
    ended = resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])
    assert ended.finished
    if which == "stopped":
        unnoticed = {(name, None), (name, change)} & set(UNNOTICED)
        assert bool(ended.recovered) is not bool(unnoticed), ended.recovered


def test_samples_in_another_order_and_missing_checkpoints(copy, runs):
    (copy / "checkpoints").rename(copy.parent / "checkpoints")
    (copy / "checkpoints").touch()
    with pytest.raises(RunError, match="is not a folder"):
        resume(copy, MODEL)
    (copy / "checkpoints").unlink()
    for change in (_reordered, _flipped, lambda content: content + b"extra"):
        resume(copy, MODEL)
        (copy / "samples.jsonl").write_bytes(change((copy / "samples.jsonl").read_bytes()))
        assert ["samples.jsonl" in one for one in resume(copy, MODEL).recovered] == [True]
        assert files(copy) == files(runs["whole"])


def test_an_unchanged_copy_has_nothing_to_say(copy, runs):
    """Also if its files are newer than now, as after a clock was set back."""
    for number, path in enumerate(sorted(copy.rglob("*"), reverse=True)):
        os.utime(path, (2**32 - number, 2**32 - number))
    assert Run.open(copy).store.damage_note() is None
    assert resume(copy, MODEL).recovered == []
    assert files(copy) == files(runs["whole"])


def _flip(folder: Path, name: str, epoch: int, chain: int) -> None:
    """Change one value by as little as its kind allows."""
    file = folder / ("tokens.npy" if name in ("tokens", "rejected") else "traces.npy")
    records = np.load(file)
    values = records[name].copy()
    values.view(np.uint8).reshape(*values.shape[:2], -1)[epoch, chain, 0] ^= 1
    records[name] = values
    np.save(file, records)


def test_diagnose_names_what_is_damaged_and_the_command(runs, tmp_path, call):
    whole = Path(shutil.copytree(runs["whole"], tmp_path / "whole"))
    for epoch, chain in ((1, 0), (2, 3), (4, 1)):
        _flip(whole, "accepted", epoch, chain)
    told = call("diagnose", whole)[1]
    assert "chains 0 to 1 in traces.npy (2 epochs, from epoch 2 on) do not fit the run" in told
    assert "chains 2 to 3 in traces.npy (1 epoch, from epoch 3 on) do not fit the run" in told
    assert f"maskov resume {whole}" in told
    assert not Run.open(whole).finished
    # What became of it is said once.
    assert call("resume", whole, "-q")[2].count("chains 0 to 1 in traces.npy (2 epochs") == 1
    assert files(whole) == files(runs["whole"])


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
        near = [value + "x", "", "raw"]
    elif isinstance(value, list):
        near = [value[::-1], [*value, *value], []]
    return [one for one in [*near, None, 10**30, {"part": "mh"}] if one != value]


def test_every_field_of_the_manifest_is_held_to(copy):
    manifest, kept, named = json.loads((copy / "manifest.json").read_text()), files(copy), 0
    for leaf in _leaves(manifest):
        if leaf[0] in ("precision_check", "stopped_at", "samples_hash"):  # added on the way
            continue
        inner = manifest
        for key in leaf[:-1]:
            inner = inner[key]
        before = inner[leaf[-1]]
        for other in _others(before):
            inner[leaf[-1]] = other
            (copy / "manifest.json").write_text(json.dumps(manifest))
            with pytest.raises(RunError, match=r"\A.+\Z") as refused:
                resume(copy, MODEL, stop=lambda: pytest.fail("it went on"))
            told = str(refused.value)
            # A value that cannot be is refused when it is read, perhaps by what it contradicts.
            is_named = f"'{'.'.join(leaf)}' is not what it was" in told
            assert is_named or "version" in told or re.search(r"is damaged: .*'[\w.]+'", told), leaf
            named += is_named
        inner[leaf[-1]] = before
    assert named > 50
    assert files(copy) == kept


def test_what_happens_to_files_while_the_run_is_on(runs, tmp_path):
    folder = tmp_path / "run"
    acts = dict.fromkeys((20, 40), lambda: shutil.rmtree(folder / "checkpoints"))
    with pytest.raises(Interrupted):
        run(folder, looks=60, acts=acts)
    assert list((folder / "checkpoints").iterdir())
    assert not resume(folder, MODEL).recovered
    assert files(folder) == files(runs["whole"])
    trace = tmp_path / "other" / "traces.npy"
    with pytest.raises(RunError, match=r"traces\.npy has 5 bytes too many"):
        run(trace.parent, acts={40: lambda: trace.write_bytes(trace.read_bytes() + b"extra")})


@pytest.mark.parametrize("write", [3, 9, 14])
def test_a_disk_that_is_full_at_any_write_is_one_sentence(write, copy, runs, monkeypatch):
    left, sync = iter(range(10**9)), os.fsync

    def full(handle: int) -> None:
        if next(left) >= write:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(MaskovError, match=r"\Acannot write .*: no space left on device\. .*\Z"):
            resume(copy, MODEL, checkpoint_every=0)
    resume(copy, MODEL)
    assert files(copy) == files(runs["whole"])


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", [
    "traces.npy", "samples.jsonl", "manifest.json", "lock", "checkpoints",
])  # fmt: skip
def test_a_link_out_of_the_folder_is_not_followed(name, link, copy, tmp_path):
    outside = tmp_path / "outside"
    if (copy / name).is_dir() and link is os.link:
        return
    (copy / name).rename(outside)
    link(outside, copy / name)
    before = _held(outside)
    if (name, link) == ("lock", os.symlink):
        outside.unlink()  # it must not be made, either
    with pytest.raises(RunError, match="link"):
        resume(copy, MODEL)
    assert {path: path.read_bytes() for path in before if path.exists()} == _held(outside)
    assert outside.exists() is ((name, link) != ("lock", os.symlink))


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["lock", "manifest.json.tmp", "samples.jsonl"])
def test_a_new_run_writes_through_no_link_of_what_was_left(name, link, tmp_path):
    """In a folder that looks like one whose run was killed before it began."""
    (tmp_path / "left").mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    link(outside, tmp_path / "left" / name)
    if name == "manifest.json.tmp":  # it is replaced
        run(tmp_path / "left")
    else:
        with pytest.raises(RunError, match=r"link|something else"):
            run(tmp_path / "left")
    assert outside.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["traces.npy", "checkpoints", "samples.jsonl"])
def test_a_link_made_while_the_run_is_on_is_not_written_through(name, tmp_path):
    held, path, outside = {}, tmp_path / "run" / name, tmp_path / "outside"

    def act() -> None:
        path.rename(outside)
        path.symlink_to(outside)
        held.update(_held(outside))

    with pytest.raises(RunError, match="link"):
        run(tmp_path / "run", acts={40: act})
    assert held == _held(outside)


@pytest.mark.parametrize(("name", "kind"), [
    *((name, "pipe") for name in ("manifest.json", "samples.jsonl", "lock", "traces.npy",
                                  "tokens.npy", NEWEST)),
    ("samples.jsonl", "socket"), ("traces.npy", "device"),
])  # fmt: skip
def test_only_regular_files_are_opened(name, kind, copy, call):
    path = _file(copy, name)
    path.unlink(missing_ok=True)
    {"pipe": os.mkfifo, "socket": unix_socket,
     "device": lambda one: one.symlink_to("/dev/zero")}[kind](path)  # fmt: skip
    with pytest.raises(RunError, match=r"not a regular file|is a link"):
        resume(copy, MODEL)
    # A diagnosis does without samples, and an evaluation without traces.
    for command in ("diagnose", "report", "evaluate"):
        call(command, copy)
    if name == "manifest.json":
        code, _, err = call("diagnose", copy)
        assert (code, f"'{path}' is not a regular file but a named pipe" in err) == (2, True)
