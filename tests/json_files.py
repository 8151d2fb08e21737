"""JSON files that a test changes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def edited(file: Path) -> Iterator[Any]:
    """Read a file; what the block makes of its content is written back."""
    data = json.loads(file.read_text())
    yield data
    file.write_text(json.dumps(data))
