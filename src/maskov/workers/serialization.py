"""Turns, and what became of them, as bytes: a group travels as it would be saved."""

from __future__ import annotations

import pickle
from typing import Any

from maskov.runs.checkpoint import Saved, pack, unpack
from maskov.runs.task import Taken, Turn


def put_turn(turn: Turn) -> bytes:
    """Turn a turn into bytes."""
    return _put(turn)


def take_turn(content: bytes) -> Turn:
    """Turn bytes into a turn."""
    return _take(content)  # type: ignore[no-any-return]


def put_result(taken: Taken) -> bytes:
    """Turn a result into bytes."""
    return _put(taken)


def take_result(content: bytes) -> Taken:
    """Turn bytes into a result."""
    return _take(content)  # type: ignore[no-any-return]


def _put(message: Turn | Taken) -> bytes:
    rest = {**vars(message), "progress": None}
    return pickle.dumps((type(message), rest, pack(Saved(message.progress))), protocol=5)


def _take(content: bytes) -> Any:
    # These bytes come from a process that this one began, or that began it.
    kind, rest, body = pickle.loads(content)
    return kind(**rest | {"progress": unpack(body).progress})
