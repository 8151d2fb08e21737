"""Tasks and their results as bytes: a group is sent as it would be saved."""

from __future__ import annotations

import pickle
from typing import Any

from maskov.runs.checkpoint import pack, unpack
from maskov.runs.task import Task, TaskResult


def to_bytes(message: Task | TaskResult) -> bytes:
    """Turn a task or a result into bytes."""
    rest = {**vars(message), "state": None}
    return pickle.dumps((type(message), rest, pack(message.state)), protocol=5)


def task_from(content: bytes) -> Task:
    """Turn bytes into a task."""
    return _from_bytes(content)  # type: ignore[no-any-return]


def result_from(content: bytes) -> TaskResult:
    """Turn bytes into a result."""
    return _from_bytes(content)  # type: ignore[no-any-return]


def _from_bytes(content: bytes) -> Any:
    # These bytes come from a process that this one began, or that began it.
    kind, rest, body = pickle.loads(content)
    return kind(**rest | {"state": unpack(body)})
