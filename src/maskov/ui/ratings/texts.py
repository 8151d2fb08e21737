"""Read the texts of one condition, from a run folder or a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from maskov.errors import InputError
from maskov.runs.files import read_text


@dataclass(frozen=True)
class Source:
    """The texts of one condition, and the run's signature if there is one."""

    name: str
    path: Path
    texts: list[str]
    signature: str | None


def read_source(path: Path) -> Source:
    """Read a run folder (`samples.jsonl`), a .jsonl file with `text`s, or a .txt file of lines."""
    path = path.resolve()
    if path.is_dir():
        return Source(path.name, path, _read(path / "samples.jsonl"), _signature(path))
    if path.suffix not in (".txt", ".jsonl"):
        raise InputError(f"'{path}' is neither a run folder nor a .txt or .jsonl file of texts.")
    return Source(path.stem, path, _read(path), None)


def _read(path: Path) -> list[str]:
    try:
        content = read_text(path).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 text.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot read '{path}': {reason}.") from error
    lines = content.replace("\r\n", "\n").removesuffix("\n").split("\n")
    texts = lines
    if path.suffix == ".jsonl":
        texts = [_text(line, number, path) for number, line in enumerate(lines, 1)]
    for number, text in enumerate(texts, 1):
        # JSON can spell half of a character, which no file or page can hold.
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(f"line {number} of '{path}' has a character that is not Unicode text.")
        # Skipping empty texts silently would flatter their condition.
        if not text.strip():
            raise InputError(
                f"line {number} of '{path}' has no text and cannot be rated; remove it."
            )
    return texts


def _text(line: str, number: int, path: Path) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise InputError(f"line {number} of '{path}' is not a JSON object with a `text`.")
    return text


def _signature(run: Path) -> str | None:
    """Return the run's signature, or None if its manifest cannot be read."""
    try:
        return str(json.loads(read_text(run / "manifest.json"))["signature"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
