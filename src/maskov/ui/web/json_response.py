"""JSON responses of any text, also of text that UTF-8 cannot encode."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import Response


def json_response(value: Any) -> Response:
    """Return plain data as JSON; lone surrogates, which UTF-8 lacks, are written as escapes."""
    try:
        content = _dump(value, ascii_only=False).encode()
    except UnicodeEncodeError:
        content = _dump(value, ascii_only=True).encode()
    return Response(content, media_type="application/json")


def _dump(value: Any, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
