"""A cell of an experiment: one configuration, keyed by its settings, done once and kept.

A piece of work is a frozen dataclass of plain values. Its key is a hash of these values and of the
weights it uses; its result is OUT/cells/KEY.json, and while chains run, their run folder is
OUT/runs/KEY, from which a stopped run goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from experiments.workshop import Workshop
from maskov.errors import InputError
from maskov.runs.files import write_atomically
from maskov.runs.signature import versions

# A cell as it is kept: what was asked for, how it came about, and `values` with standard errors.
Found = dict[str, Any]


@dataclass(frozen=True)
class Work(ABC):
    """One configuration of something to be computed."""

    kind: ClassVar[str]

    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """Return the models that the work uses, by their roles."""

    @abstractmethod
    def run(self, workshop: Workshop, folder: Path) -> Found:
        """Do the work; return at least `values`."""

    @property
    def passes(self) -> float:
        """Guess how many masked passes the work takes, to plan by."""
        return 0.0

    @property
    def translates(self) -> bool:
        """Whether the work needs a translation model and a test set."""
        return any("-" in role for role in self.roles())

    def key(self, workshop: Workshop, precision: str | None = None) -> str:
        """Return the hash of everything that decides the result, by default on this device."""
        asked = {
            "kind": self.kind,
            **asdict(self),
            "weights": {role: workshop.fingerprint(role) for role in self.roles()},
            "precision": (precision or workshop.precision) if self.roles() else None,
        }
        text = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def done(work: Work, workshop: Workshop) -> Found | None:
    """Return the result of a cell that was finished before, here or on another device.

    What a GPU did in its precision is not done again on a CPU, nor the other way round; a cell says
    how it came about.
    """
    for precision in dict.fromkeys((workshop.precision, workshop.setting.precision, "float32")):
        key = work.key(workshop, precision)
        file = _file(workshop, key)
        if file.is_file():
            return _read(file, key)
    return None


def _read(file: Path, key: str) -> Found:
    """Read a cell, and refuse one that is damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        whole = found["key"] == key and isinstance(found["values"], dict)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise InputError(f"'{file}' is damaged: remove it, and it is computed again.")
    return dict(found)


def do(work: Work, workshop: Workshop) -> Found:
    """Return the result of a cell, computing it only if nobody has."""
    before = done(work, workshop)
    if before is not None:
        return before
    key = work.key(workshop)
    folder = workshop.out / "runs" / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    found = work.run(workshop, folder)
    cell = {
        "kind": work.kind,
        "key": key,
        "asked": asdict(work),
        "setting": workshop.setting.name,
        "models": {role: _model(workshop, role) for role in work.roles()},
        "precision": workshop.precision,
        "device": workshop.machine,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begun, 2),
        "versions": versions(),
        **found,
    }
    file = _file(workshop, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(cell, ensure_ascii=False, indent=1)
    write_atomically(file, text.encode() + b"\n")
    if not workshop.keep_runs:
        shutil.rmtree(folder, ignore_errors=True)
    # As it will be read next time: JSON knows no tuples.
    read: Found = json.loads(text)
    return read


def _file(workshop: Workshop, key: str) -> Path:
    return workshop.out / "cells" / f"{key}.json"


def _model(workshop: Workshop, role: str) -> dict[str, str]:
    """Name a model; of a path only the last part, since the rest is of one machine."""
    name = Path(workshop.named(role)).name
    return {"name": name, "fingerprint": workshop.fingerprint(role)}
