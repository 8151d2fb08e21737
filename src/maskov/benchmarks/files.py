"""Writing the results of a benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maskov.errors import InputError


def check_writable(path: Path) -> None:
    """Raise if the file exists or its folder does not, before anything is measured."""
    if path.exists():
        raise InputError(f"'{path}' already exists; give another --out.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"folder '{path.parent}' not found; create it or give another --out.")


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write one indented JSON object."""
    try:
        path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write '{path}': {reason}.") from error
