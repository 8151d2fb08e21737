"""The groups of a run between their tasks: in memory, and on disk where there is a run folder.

A group is written when its last checkpoint is old enough. More groups than memory should hold are
written at once and read back for their next task, so that a run of many chains needs no more memory
than one of few.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from maskov.runs.checkpoint import Cursor, Saved
from maskov.runs.store import Store
from maskov.runs.validation import GroupShape

# Bytes of waiting groups that stay in memory.
_HELD = 2**28


class GroupCache:
    """The groups of a run by their number; `shape` gives the shape of each, and how it begins."""

    def __init__(self, store: Store, shape: Callable[[int], GroupShape], seconds: float) -> None:
        self.damaged: list[Path] = []
        self._store = store
        self._mould = shape
        self._seconds = seconds
        self._held: dict[int, Saved] = {}
        self._unsaved: set[int] = set()
        self._begun = time.monotonic()
        self._saved_at: dict[int, float] = {}

    def find(self, group: int) -> Saved:
        """Return a group as the store has it, or from its beginning; damaged files are noted."""
        shape = self._mould(group)
        saved, damaged = self._store.load(group, shape)
        self.damaged += [file for file in damaged if file not in self.damaged]
        return saved or Saved(shape.fresh)

    def hold(self, group: int, saved: Saved) -> None:
        """Take a group for what it is told to be, whatever the store has."""
        self._held[group] = saved

    def get(self, group: int) -> Saved:
        """Return a group as it stands."""
        return self._held[group] if group in self._held else self.find(group)

    def put(self, group: int, saved: Saved) -> None:
        """Keep a group; write it if that is due, or if there is no room."""
        self._held[group] = saved
        self._unsaved.add(group)
        last = self._saved_at.get(group, self._begun)
        if time.monotonic() - last >= self._seconds:
            self.save(group, saved.cursor)
        self._make_room(saved.cursor)

    def save(self, group: int, cursor: Cursor) -> None:
        """Write one group."""
        self._store.save(group, replace(self._held[group], cursor=cursor))
        self._unsaved.discard(group)
        self._saved_at[group] = time.monotonic()

    def save_all(self, cursor: Cursor) -> None:
        """Write every group that has gone on since it was written."""
        for group in sorted(self._unsaved):
            self.save(group, cursor)

    def _make_room(self, cursor: Cursor) -> None:
        if not self._store.durable or len(self._held) < 2:
            return
        sizes = {group: saved.state.size for group, saved in self._held.items()}
        for group in sorted(sizes):
            if sum(sizes.values()) <= _HELD:
                break
            if group in self._unsaved:
                self.save(group, cursor)
            del self._held[group], sizes[group]
