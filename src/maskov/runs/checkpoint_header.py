"""What a checkpoint says of itself: read first, since it may promise more than memory holds.

A checkpoint is a line that names its kind, two hashes, and tensors in the format of safetensors,
which begins with a header: the name, the kind and the shape of each, and the numbers beside them.
The first hash is that of the header, so that it can be believed before the rest is read; the second
is that of everything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from maskov.runs.files import open_regular

MAGIC = b"maskov checkpoint 9\n"
_HASH = hashlib.sha256().digest_size
START = len(MAGIC) + 2 * _HASH
# Bytes of names and shapes; a checkpoint has about a hundred tensors.
_MOST_HEADER = 2**20
_KINDS = {
    "BOOL": torch.bool,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}

# The kind and the shape of each tensor, by its name.
Sizes = dict[str, tuple[torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True)
class Header:
    """The tensors of a checkpoint, and what it holds beside them."""

    sizes: Sizes
    metadata: dict[str, Any]


def seal(body: bytes) -> bytes:
    """Return a checkpoint of these tensors, with the hashes that prove it whole."""
    header = body[: 8 + int.from_bytes(body[:8], "little")]
    return MAGIC + hashlib.sha256(header).digest() + hashlib.sha256(body).digest() + body


def read_header(path: Path) -> Header | None:
    """Return what a checkpoint says of itself; nothing if the file is of another size."""
    try:
        with open_regular(path) as file:
            start, length = file.read(START), file.read(8)
            size = int.from_bytes(length, "little")
            if size > _MOST_HEADER:
                return None
            text = file.read(size)
        if start[:-_HASH] != MAGIC + hashlib.sha256(length + text).digest():
            return None
        found = json.loads(text)
        metadata = found.pop("__metadata__")
        sizes = {str(name): _size(entry) for name, entry in found.items()}
        numbers = {name: json.loads(metadata[name]) for name in ("group", "fields")}
        promised = sum(kind.itemsize * prod(shape) for kind, shape in sizes.values())
        if path.stat().st_size != START + 8 + size + promised:
            return None
        return Header(sizes, numbers)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _size(entry: dict[str, Any]) -> tuple[torch.dtype, tuple[int, ...]]:
    shape = entry["shape"]
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("no shape")
    return _KINDS[entry["dtype"]], tuple(shape)


def read_body(path: Path) -> bytes | None:
    """Return the tensors of a checkpoint as bytes; nothing if their hash is wrong."""
    try:
        with open_regular(path) as file:
            expected, body = file.read(START)[-_HASH:], file.read()
    except OSError:
        return None
    return body if hashlib.sha256(body).digest() == expected else None
