"""How many texts stand in the training text word for word."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from maskov.errors import InputError
from maskov.evaluation.estimates import Estimate, mean

# Bytes of a line; a few packed ones may unfold to more than memory holds.
_LONGEST = 2**20


def copied(texts: Sequence[str], training: str | Path) -> tuple[Estimate, str]:
    """Return the share of texts that are a line of the training text, and that text's hash.

    Case and white space do not count, since tokenizers change both. The training text may be
    plain, .xz or .gz; it is read a line at a time, and only hashes of the texts are held.
    """
    wanted = [_trace(text) for text in texts]
    unseen, seen = set(wanted), set()
    content = hashlib.sha256()
    number = 0
    try:
        with _open(Path(training)) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                if len(line) == _LONGEST:
                    raise InputError(f"line {number} of '{training}' is no sentence: too long.")
                content.update(line)
                trace = _trace(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                if trace in unseen:
                    unseen.remove(trace)
                    seen.add(trace)
    except UnicodeDecodeError as error:
        raise InputError(f"'{training}' is not UTF-8 text (line {number}).") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read '{training}': {reason.lower().rstrip('.')}.") from error
    if not number:
        raise InputError(f"'{training}' is empty; give one sentence a line.")
    return mean(np.array([trace in seen for trace in wanted], dtype=float)), content.hexdigest()


def _trace(text: str) -> bytes:
    """Hash a text without its case and white space."""
    return hashlib.blake2b("".join(text.lower().split()).encode(), digest_size=16).digest()


def _open(path: Path) -> BufferedIOBase:
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return open(path, "rb")
