"""The fraction of texts that are verbatim copies of the training text."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from maskov.errors import InputError
from maskov.evaluation.estimates import Estimate, mean

# Maximum bytes of a line or a record: a compressed file could expand beyond memory.
_MAX_LINE = 2**20


def copied(texts: Sequence[str], training: str | Path, fasta: bool = False) -> tuple[Estimate, str]:
    """Return the fraction of texts that are a line of the training text, and that text's hash.

    Case and white space are ignored, since tokenizers change both. The training text may be plain,
    .xz or .gz; it is read line by line, and only hashes are kept in memory. Where the texts are
    sequences (`fasta`), it may be FASTA, too.
    """
    hashes = [_hash(text) for text in texts]
    missing = set(hashes)
    content = hashlib.sha256()
    try:
        with _open(Path(training)) as file:
            lines = _lines(file, training, content.update)
            for text in _sequences(lines, training) if fasta else lines:
                missing.discard(_hash(text))
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read '{training}': {reason.lower().rstrip('.')}.") from error
    return mean(np.array([key not in missing for key in hashes], float)), content.hexdigest()


def _lines(
    file: BufferedIOBase, training: object, update: Callable[[bytes], object]
) -> Iterator[str]:
    """Yield the lines of a file, whose bytes `update` is told of."""
    number = 0
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
        if len(line) == _MAX_LINE:
            raise InputError(f"line {number} of '{training}' is too long for a sentence.")
        update(line)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"'{training}' is not UTF-8 text (line {number}).") from error
        yield text
    if not number:
        raise InputError(f"'{training}' is empty; give one sentence per line.")


def _sequences(lines: Iterable[str], training: object) -> Iterator[str]:
    """Yield the sequences of FASTA, whose lines are joined, or of lines without a header."""
    parts, size, headed = list[str](), 0, False
    for line in lines:
        if line.startswith(">"):
            yield "".join(parts).removesuffix("*")
            parts, size, headed = [], 0, True
        elif headed:
            parts.append("".join(line.split()))
            size += len(parts[-1])
            if size > _MAX_LINE:
                raise InputError(f"a record of '{training}' is too long for a sequence.")
        else:
            yield line
    yield "".join(parts).removesuffix("*")


def _hash(text: str) -> bytes:
    """Hash a text, ignoring case and white space."""
    return hashlib.blake2b("".join(text.lower().split()).encode(), digest_size=16).digest()


def _open(path: Path) -> BufferedIOBase:
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return open(path, "rb")
