"""Plain data for JSON, which knows no not-a-number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

# Digits that a page shows at most, with some to spare for zooming; more would only make it larger.
PAGE_DIGITS = 7


def plain(value: Any, digits: int | None = None) -> Any:
    """Return plain data, floats rounded to so many significant digits, without not-a-number."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), digits)
    if isinstance(value, Mapping):
        return {str(name): plain(part, digits) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, digits) for part in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    return value


def to_json(report: Any) -> str:
    """Return all that a report holds as one JSON object."""
    return json.dumps(plain(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
