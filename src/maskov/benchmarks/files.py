"""Where a benchmark's results are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maskov.errors import InputError


def check_free(path: Path) -> None:
    """Refuse a place that cannot be written to, or that holds something, before any work."""
    if path.exists():
        raise InputError(f"'{path}' is there already; give another --out.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to write --out to.")


def write_json(path: Path, found: dict[str, Any]) -> None:
    """Write one JSON object, to be read by people as well."""
    try:
        path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write '{path}': {reason}.") from error
