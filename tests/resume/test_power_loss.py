"""A machine that loses power: only what was forced to disk is there afterwards.

A run leaves behind, at any moment, what its calls of `fsync` promise and nothing else: of a file
the content of its last one, of a folder the names of its last one. From that, it goes on.
"""

import os
from pathlib import Path

import pytest

from maskov import Run, resume
from odd_workers import files
from stopped_runs import EPOCHS, MODEL, header_of, run


class Disk:
    """What a loss of power would leave of a folder, kept up to date call by call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.calls = 0

    def sync(self, handle: int) -> None:
        """Note what is forced to disk now."""
        path, node = Path(os.readlink(f"/proc/self/fd/{handle}")), os.fstat(handle).st_ino
        if path.is_dir():
            self.names[node] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
            for inner in filter(Path.is_dir, path.iterdir()):
                self.names.setdefault(inner.stat().st_ino, {})
        else:
            self.contents[node] = path.read_bytes()
        self.calls += 1

    def leave(self, copy: Path) -> bool:
        """Write what is left to another folder; say whether it is a run at all."""
        outer = self.names.get(self.folder.parent.stat().st_ino, {})
        if self.folder.name in outer:
            self._leave(outer[self.folder.name], copy)
        return (copy / "manifest.json").exists()

    def _leave(self, node: int, copy: Path) -> None:
        if node in self.contents:
            copy.write_bytes(self.contents[node])
            return
        if node not in self.names:
            # Nobody has forced it to disk: its name may be there, with nothing in it.
            copy.touch()
            return
        copy.mkdir()
        for name, inner in self.names[node].items():
            self._leave(inner, copy / name)


@pytest.mark.slow
def test_power_is_lost_at_any_moment(tmp_path, monkeypatch):
    """The run that is left goes on from its checkpoints, none of which promises what is not there.

    To go on from the beginning would come to the same bytes; so it is counted how far each was.
    """
    folder, real = tmp_path / "runs" / "run", os.fsync
    folder.parent.mkdir()
    run(tmp_path / "whole")
    whole = files(tmp_path / "whole")
    disk, left = Disk(folder), []

    def sync(handle):
        real(handle)
        disk.sync(handle)
        copy = tmp_path / f"left-{disk.calls}"
        if disk.leave(copy):
            left.append(copy)

    monkeypatch.setattr(os, "fsync", sync)
    run(folder)
    monkeypatch.setattr(os, "fsync", real)
    assert files(folder) == whole
    assert len(left) > 50
    closed = []
    for copy in left:
        newest = {file.name[:5]: file for file in sorted(copy.glob("checkpoints/*.checkpoint"))}
        epochs = [header_of(file)["epoch"] for file in newest.values()]
        closed.append(min(epochs) if len(epochs) == 2 else 0)
        if closed[-1]:
            steps = Run.open(copy).traces["steps"][: closed[-1]]
            assert (steps > 0).all(), "a checkpoint promises rows that are not there"
    assert sorted(closed) == closed
    assert set(closed) == set(range(EPOCHS + 1))
    for copy in left[:: len(left) // 6]:
        assert not resume(copy, MODEL).recovered
        assert files(copy) == whole
