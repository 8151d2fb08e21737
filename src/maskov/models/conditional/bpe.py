"""Byte-pair encoding as subword-nmt and fastBPE define it, on top of a word-level tokenizer.

Merges split each word into subwords; every subword but the last of its word ends in `@@`. The
vocabulary then maps subwords to ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from maskov.errors import ModelError

# The merges of a saved tokenizer, next to its Hugging Face files.
FILE = "bpe_merges.txt"
CONTINUES = "@@"

_WORD_END = "</w>"


class Merges:
    """Byte-pair merges, in order of priority.

    With `separate_end` (version 0.1 of the file format) the end-of-word marker starts as a symbol
    of its own; otherwise (0.2) it starts attached to the word's last letter.
    """

    def __init__(self, merges: Sequence[tuple[str, str]], separate_end: bool = False) -> None:
        self.separate_end = separate_end
        self._rank: dict[tuple[str, str], int] = {}
        for merge in merges:
            self._rank.setdefault(merge, len(self._rank))

    @classmethod
    def read(cls, path: Path) -> Merges:
        """Read lines of `left right`, or fastBPE's `left right count`."""
        try:
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeError) as error:
            raise ModelError(f"cannot read the BPE merges '{path}': {error}.") from error
        version = re.fullmatch(r"#version: ([\d.]+)\s*", lines[0])
        # Split at spaces only: other whitespace may be part of a symbol.
        rows = [line.strip("\r\n ").split(" ") for line in lines[bool(version) :]]
        columns = {len(row) for row in rows}
        if columns not in ({2}, {3}):
            raise ModelError(f"'{path}' is not a BPE merges file: not every line is a pair.")
        # Files without a version: fastBPE (3 columns) is like 0.2, early subword-nmt is 0.1.
        default = "0.1" if columns == {2} else "0.2"
        separate_end = (version[1] if version else default) == "0.1"
        return cls([(row[0], row[1]) for row in rows], separate_end)

    def write(self, path: Path) -> None:
        """Write the merges with their format version."""
        path.write_text("\n".join(self.lines()) + "\n", encoding="utf-8", newline="\n")

    def lines(self) -> list[str]:
        """Return the lines of the file."""
        version = "0.1" if self.separate_end else "0.2"
        return [f"#version: {version}", *(f"{left} {right}" for left, right in self._rank)]

    def split(self, word: str) -> list[str]:
        """Return the subwords of a word, with `@@` on each but the last."""
        parts = [*word, _WORD_END] if self.separate_end else [*word[:-1], word[-1] + _WORD_END]
        while known := [pair for pair in pairwise(parts) if pair in self._rank]:
            parts = _merge(parts, min(known, key=self._rank.__getitem__))
        if parts[-1] == _WORD_END:
            parts.pop()
        else:
            parts[-1] = parts[-1].removesuffix(_WORD_END)
        return [part + CONTINUES for part in parts[:-1]] + parts[-1:]


def _merge(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join every occurrence of a pair, from the left."""
    merged: list[str] = []
    place = 0
    while place < len(parts):
        step = 2 if tuple(parts[place : place + 2]) == pair else 1
        merged.append("".join(parts[place : place + step]))
        place += step
    return merged


class BytePairTokenizer:
    """A word-level tokenizer whose words are split by merges first; special tokens stay whole.

    The BPE model of `tokenizers` cannot be used: it needs an id for every intermediate merge, and
    vocabularies of this kind list only the final subwords.
    """

    def __init__(self, words: Any, merges: Merges) -> None:
        self.words, self.merges = words, merges
        self._special = frozenset(words.all_special_tokens)
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._special))))

    def __call__(self, text: str | Sequence[str], **options: Any) -> Any:
        """Tokenise one text or several, with the options of Hugging Face tokenizers."""
        return self.words(self._split(text), **options)

    def encode(self, text: str, **options: Any) -> Any:
        """Return the ids of one text."""
        return self.words.encode(self._split(text), **options)

    def tokenize(self, text: str, **options: Any) -> Any:
        """Return the subwords of one text, those outside the vocabulary included."""
        return self.words.tokenize(self._split(text), **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write the word-level tokenizer and the merges."""
        self.words.save_pretrained(folder, **options)
        self.merges.write(Path(folder) / FILE)

    def __len__(self) -> int:
        return len(self.words)

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling look up attributes before `words` exists.
        if name.startswith("__") or name == "words":
            raise AttributeError(name)
        return getattr(self.words, name)

    def _split(self, text: str | Sequence[str]) -> str | list[str]:
        return self._line(text) if isinstance(text, str) else [self._line(line) for line in text]

    def _line(self, text: str) -> str:
        parts = self._pattern.sub(r" \g<0> ", text).split()
        split = ([word] if word in self._special else self.merges.split(word) for word in parts)
        return " ".join(subword for subwords in split for subword in subwords)
