"""Text as fairseq reads it: words cut by learned merges, and a dictionary that numbers the pieces.

A piece that its word goes on after ends in `@@`, so that pieces stand between spaces like words.
Text is expected as it was in training: tokenised by Moses' rules (punctuation apart, `&apos;`
for an apostrophe), and for the published English-German models with `##AT##-##AT##` for a hyphen
within a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from maskov.errors import ModelError

# The tokens in front of every dictionary of Mask-Predict's fairseq, which the file does not list;
# other versions of fairseq have no mask there.
BEGIN, PAD, END, UNKNOWN, MASK = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

_GOES_ON = "@@"
_WORD_END = "</w>"
_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL)))


def read_dictionary(path: Path) -> list[str]:
    """Read a fairseq dictionary of lines `token count`; return all tokens, the special ones first.

    A token's place in the list is its id.
    """
    words = dict.fromkeys(SPECIAL)
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                word, gap, count = line.rstrip("\n").rpartition(" ")
                if not gap or not count.isdecimal():
                    raise ModelError(f"line {number} of '{path}' is not 'token count'.")
                if word in words:
                    # Fairseq would number it twice, and no text could tell which is meant.
                    raise ModelError(f"line {number} of '{path}' lists '{word}' again.")
                words[word] = None
    except (OSError, UnicodeError) as error:
        raise ModelError(f"the dictionary '{path}' cannot be read: {error}.") from error
    return list(words)


class Subwords:
    """Byte-pair merges, as subword-nmt and fastBPE learn them, in the order to be done.

    `apart` is the older form of the codes, in which the mark for a word's end is a symbol of its
    own until something merges with it; otherwise the word's last letter carries it.
    """

    def __init__(self, merges: Sequence[tuple[str, str]], apart: bool = False) -> None:
        self.apart = apart
        self._rank: dict[tuple[str, str], int] = {}
        for merge in merges:
            self._rank.setdefault(merge, len(self._rank))

    @classmethod
    def read(cls, path: Path) -> Subwords:
        """Read a file of codes: `left right`, or fastBPE's `left right count`."""
        try:
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeError) as error:
            raise ModelError(f"the subword codes '{path}' cannot be read: {error}.") from error
        version = re.fullmatch(r"#version: ([\d.]+)\s*", lines[0])
        # Only spaces part the symbols; other blanks may be letters here.
        codes = [line.strip("\r\n ").split(" ") for line in lines[bool(version) :]]
        columns = {len(code) for code in codes}
        if columns not in ({2}, {3}):
            raise ModelError(f"'{path}' is no file of subword codes: not all lines are pairs.")
        # fastBPE writes no version; nor did subword-nmt while the mark stood apart.
        unsaid = "0.1" if columns == {2} else "0.2"
        apart = (version[1] if version else unsaid) == "0.1"
        return cls([(code[0], code[1]) for code in codes], apart)

    def cut(self, word: str) -> list[str]:
        """Return the pieces of one word, with `@@` on each but the last."""
        parts = [*word, _WORD_END] if self.apart else [*word[:-1], word[-1] + _WORD_END]
        while known := [pair for pair in pairwise(parts) if pair in self._rank]:
            parts = _merged(parts, min(known, key=self._rank.__getitem__))
        if parts[-1] == _WORD_END:
            parts.pop()
        else:
            parts[-1] = parts[-1].removesuffix(_WORD_END)
        return [part + _GOES_ON for part in parts[:-1]] + parts[-1:]

    def apply(self, text: str) -> str:
        """Return the text with all its words cut; special tokens stay whole."""
        words = _SPECIAL.sub(r" \g<0> ", text).split()
        cut = (self.cut(word) if word not in SPECIAL else [word] for word in words)
        return " ".join(piece for pieces in cut for piece in pieces)


def _merged(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair wherever it stands, from the left."""
    found: list[str] = []
    place = 0
    while place < len(parts):
        step = 2 if tuple(parts[place : place + 2]) == pair else 1
        found.append("".join(parts[place : place + step]))
        place += step
    return found


def plain_tokenizer(words: Sequence[str]) -> Any:
    """Return a tokenizer of pieces between spaces, which joins them to words when it decodes."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(r"\z"), " "),
            decoders.Fuse(),
            decoders.Replace(f"{_GOES_ON} ", ""),
            decoders.Replace(Regex(r" +\z"), ""),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BEGIN,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        mask_token=MASK,
        clean_up_tokenization_spaces=False,
    )


class SubwordTokenizer:
    """A tokenizer of pieces that cuts words first; all else is the plain one's own.

    The merges of `tokenizers` will not do: they need an id for every piece on the way, and a
    dictionary lists only those that were left at the end.
    """

    def __init__(self, plain: Any, subwords: Subwords) -> None:
        self.plain, self.subwords = plain, subwords

    def __call__(self, text: str | Sequence[str], **options: Any) -> Any:
        """Tokenise one text or several, with the options of Hugging Face tokenizers."""
        return self.plain(self._cut(text), **options)

    def encode(self, text: str, **options: Any) -> Any:
        """Return the ids of one text."""
        return self.plain.encode(self._cut(text), **options)

    def tokenize(self, text: str, **options: Any) -> Any:
        """Return the pieces of one text, those the dictionary lacks as they are."""
        return self.plain.tokenize(self._cut(text), **options)

    def save_pretrained(self, *_: Any, **__: Any) -> None:
        """Refuse: what would be written could not cut words."""
        raise ModelError(
            "a tokenizer with fairseq's subword codes cannot be saved as a Hugging Face one; "
            "keep the folder that it was read from."
        )

    def __len__(self) -> int:
        return len(self.plain)

    def __getattr__(self, name: str) -> Any:
        # While being copied or unpickled there is nothing to ask yet.
        if name.startswith("__") or name == "plain":
            raise AttributeError(name)
        return getattr(self.plain, name)

    def _cut(self, text: str | Sequence[str]) -> str | list[str]:
        if isinstance(text, str):
            return self.subwords.apply(text)
        return [self.subwords.apply(line) for line in text]
