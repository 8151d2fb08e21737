"""The groups of a run between their tasks: in memory, and on disk where there is a run folder.

A group is written when its last checkpoint is old enough. More groups than memory should hold are
written at once and read back for their next task, so that a run of many chains needs no more memory
than one of few.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from maskov.runs.group import GroupState
from maskov.runs.store import Store
from maskov.runs.validation import GroupShape

# Bytes of waiting groups that stay in memory.
_HELD = 2**28


class GroupCache:
    """The groups of a run by their number; `shape` gives the shape of each, and how it begins."""

    def __init__(self, store: Store, shape: Callable[[int], GroupShape], seconds: float) -> None:
        self._store = store
        self._shape = shape
        self._seconds = seconds
        self._held: dict[int, GroupState] = {}
        self._unsaved: set[int] = set()
        self._begun = time.monotonic()
        self._saved_at: dict[int, float] = {}

    def get(self, group: int) -> GroupState:
        """Return a group as it stands, as the store has it, or from its beginning."""
        if group in self._held:
            return self._held[group]
        shape = self._shape(group)
        return self._store.load(group, shape) or shape.fresh

    def put(self, group: int, state: GroupState) -> None:
        """Keep a group; write it if that is due, or if there is no room."""
        self._held[group] = state
        self._unsaved.add(group)
        if time.monotonic() - self._saved_at.get(group, self._begun) >= self._seconds:
            self._save(group)
        self._make_room()

    def _save(self, group: int) -> None:
        self._store.save(group, self._held[group])
        self._unsaved.discard(group)
        self._saved_at[group] = time.monotonic()

    def save_all(self) -> None:
        """Write every group that has gone on since it was written."""
        for group in sorted(self._unsaved):
            self._save(group)

    def _make_room(self) -> None:
        if not self._store.durable or len(self._held) < 2:
            return
        sizes = {group: state.size for group, state in self._held.items()}
        for group in sorted(sizes):
            if sum(sizes.values()) <= _HELD:
                break
            if group in self._unsaved:
                self._save(group)
            del self._held[group], sizes[group]
