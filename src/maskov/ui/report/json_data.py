"""Convert data for JSON, which has no NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

# Significant digits in a page: enough for zooming, and keeps it small.
PAGE_DIGITS = 7


def json_safe(value: Any, digits: int | None = None) -> Any:
    """Return dicts, lists and numbers; floats rounded to `digits`, NaN and infinities as None."""
    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value), digits)
    if isinstance(value, Mapping):
        return {str(name): json_safe(part, digits) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(part, digits) for part in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    return value


def to_json(report: Any) -> str:
    """Return a report as one JSON object."""
    return json.dumps(json_safe(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
