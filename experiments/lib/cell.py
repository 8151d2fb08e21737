"""A cell of an experiment: one configuration, identified by a hash, computed once and stored.

A cell is a frozen dataclass of plain values. Its key is a hash of these values and of the model
weights. Its result is stored in OUT/cells/KEY.json. While its chains run, their run folder is
OUT/runs/KEY, so an interrupted cell can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from experiments.lib.context import Context
from maskov.errors import InputError
from maskov.runs.files import write_atomically
from maskov.runs.manifest import versions

# Metadata of a field that was added later: at its default it is not part of the key, so that cells
# stored before stay valid.
LATER = {"added later": True}

# A stored cell: its configuration, how it was computed, and `values` with standard errors.
CellResult = dict[str, Any]


@dataclass(frozen=True)
class Cell(ABC):
    """One configuration to compute.

    `kind` and the names of the fields enter the key: renaming them invalidates stored cells.
    """

    kind: ClassVar[str]

    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models that the cell uses."""

    @abstractmethod
    def run(self, context: Context, folder: Path) -> CellResult:
        """Compute the cell; the result contains at least `values`."""

    @property
    def expected_passes(self) -> float:
        """A rough number of masked passes, for planning."""
        return 0.0

    @property
    def translates(self) -> bool:
        """Whether the cell needs a translation model and a test set."""
        return any("-" in role for role in self.roles())

    def key(self, context: Context, precision: str | None = None) -> str:
        """Return the hash of everything that determines the result (default: on this device)."""
        unset = {
            field.name
            for field in fields(self)
            if "added later" in field.metadata and getattr(self, field.name) == field.default
        }
        configuration = {
            "kind": self.kind,
            **{name: value for name, value in asdict(self).items() if name not in unset},
            "weights": {role: context.fingerprint(role) for role in self.roles()},
            "precision": (precision or context.precision) if self.roles() else None,
        }
        # Without it the key is that of cells stored before there was this option.
        removed = {
            role: share for role in self.roles() if (share := context.smoothing_removed(role))
        }
        if removed:
            configuration["remove_smoothing"] = removed
        text = json.dumps(configuration, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_cell(cell: Cell, context: Context) -> CellResult | None:
    """Return the stored result of a cell, or None.

    A result computed in GPU precision is also used on a CPU, and vice versa. The stored result
    names its device and precision.
    """
    for precision in dict.fromkeys((context.precision, context.setting.precision, "float32")):
        key = cell.key(context, precision)
        file = _file(context, key)
        if file.is_file():
            return _read(file, key)
    return None


def _read(file: Path, key: str) -> CellResult:
    """Read a stored cell; raise if it is damaged."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        valid = stored["key"] == key and isinstance(stored["values"], dict)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise InputError(f"'{file}' is damaged: delete it to compute it again.")
    return dict(stored)


def run_cell(cell: Cell, context: Context) -> CellResult:
    """Return the stored result of a cell, or compute and store it."""
    stored = load_cell(cell, context)
    if stored is not None:
        return stored
    key = cell.key(context)
    folder = context.out / "runs" / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    computed = cell.run(context, folder)
    result = {
        "kind": cell.kind,
        "key": key,
        "asked": asdict(cell),
        "setting": context.setting.name,
        "models": {role: _model(context, role) for role in cell.roles()},
        "precision": context.precision,
        "device": context.device_name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start, 2),
        "versions": versions(),
        **computed,
    }
    file = _file(context, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, ensure_ascii=False, indent=1)
    write_atomically(file, text.encode() + b"\n")
    if not context.keep_runs:
        shutil.rmtree(folder, ignore_errors=True)
    # Return exactly what a later call reads: JSON turns tuples into lists.
    reread: CellResult = json.loads(text)
    return reread


def _file(context: Context, key: str) -> Path:
    return context.out / "cells" / f"{key}.json"


def _model(context: Context, role: str) -> dict[str, Any]:
    """Name a model by the last part of its path: the rest is specific to one machine."""
    name = Path(context.model_name(role)).name
    removed = context.smoothing_removed(role)
    return {
        "name": name,
        "fingerprint": context.fingerprint(role),
        **({"remove_smoothing": removed} if removed else {}),
    }
