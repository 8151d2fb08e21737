"""FASTA: named sequences of letters, such as proteins, and how a model reads them.

    >parent heavy chain
    EVQLVESGGG
    LVQPGGSLRL

A name is the whole header without its '>'. Sequences may be in lower case, on several lines, and
end in '*'. Whether a model's tokenizer wants spaces between letters is found out from it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskov.errors import InputError, refuse, required
from maskov.models.base import MaskedModel
from maskov.models.tokens import MARKS

SUFFIXES = (".fa", ".fasta", ".faa")
# The letter of a blank in a template.
BLANK = "_"
_LINE = 80


@dataclass(frozen=True)
class Record:
    """A named sequence of capital letters."""

    name: str
    sequence: str

    def __str__(self) -> str:
        return self.sequence


def is_fasta(source: str, lines: Sequence[str]) -> bool:
    """Whether a file is FASTA: by its name, or by its first line."""
    return Path(source).suffix.lower() in SUFFIXES or lines[0].startswith(">")


def parse(lines: Iterable[str], source: str) -> list[Record]:
    """Read the records of a file, or say what is wrong and where; `source` names the file."""
    found: dict[str, str] = {}
    name = ""
    # Whatever system they come from, lines end alike.
    split = re.split(r"\r\n|\r|\n", "\n".join(line.removesuffix("\n") for line in lines))
    for number, line in enumerate(split, 1):
        if line.startswith(">"):
            name = " ".join(line[1:].split())
            refuse(
                (not name, f"line {number} of '{source}' has no name after '>'; give one."),
                (
                    name in found,
                    f"'{source}' has two records '{name}' (line {number}); rename one.",
                ),
            )
            found[name] = ""
        elif line.strip():
            refuse(
                (
                    not found,
                    f"'{source}' has no header: write '>' and a name before each sequence.",
                )
            )
            found[name] += "".join(line.split())
    # The stop that may end a sequence is none of its letters. Some letters have no capital of one
    # letter, which would shift all places behind them.
    records = [
        Record(
            key, "".join(one.upper() if one.isascii() else one for one in text.removesuffix("*"))
        )
        for key, text in found.items()
    ]
    refuse(
        (not found, f"'{source}' has no record: write '>' and a name, then its sequence."),
        *(
            (not one.sequence, f"the record '{one.name}' of '{source}' is empty; give a sequence.")
            for one in records
        ),
    )
    return records


def read_fasta(path: str | Path) -> list[Record]:
    """Read a FASTA file; its records are texts for `sample`, `score`, `rewrite` and `evaluate`."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}.") from error
    return parse(lines, str(path))


def numbered(name: str, *numbers: int) -> str:
    """Return the name of a sample: its numbers follow the first word, which programs read."""
    first, space, rest = name.partition(" ")
    return "|".join([first, *map(str, numbers)]) + space + rest


def to_fasta(records: Iterable[Record]) -> str:
    """Return records as FASTA, in lines of 80 letters."""
    lines = list[str]()
    for record in records:
        lines.append(">" + " ".join(record.name.split()))
        sequence = record.sequence
        lines += [sequence[at : at + _LINE] for at in range(0, len(sequence), _LINE)]
    return "".join(line + "\n" for line in lines)


def spelled(model: MaskedModel, record: Record, blanks: bool = False) -> str:
    """Return a sequence as the model's tokenizer reads it, one token for each letter.

    With `blanks`, `_` is a position to fill. Letters that the model lacks are refused.
    """
    letters = letters_of(model)
    refuse(
        (
            not letters,
            f"the tokens of '{model.name}' are words or parts of them: FASTA is for models of "
            "single letters, such as those of proteins.",
        ),
        (
            not blanks and BLANK in record.sequence,
            f"'{record.name}' has a blank '{BLANK}' at position "
            f"{record.sequence.find(BLANK) + 1}; fill it in, or use `maskov infill`.",
        ),
    )
    known = letters | {BLANK: model.mask_id}
    _check_letters(
        record, known, f"'{model.name}' does not know; its letters are {''.join(sorted(letters))}"
    )
    parts = ["[MASK]" if letter == BLANK else letter for letter in record.sequence]
    wanted = [known[letter] for letter in record.sequence]
    texts = ("".join(parts), " ".join(parts))
    return required(
        next((text for text in texts if model.encode(text) == wanted), None),
        f"the tokenizer of '{model.name}' does not split '{record.name}' into letters.",
    )


def with_blanks(model: MaskedModel, template: str, name: str) -> str:
    """Return a template with [MASK] for each `_`, if the model's tokens are letters."""
    if BLANK not in template:
        return template
    others = "[MASK" in template or "<mask" in template
    if not letters_of(model):
        if others:
            return template
        raise InputError(f"{name} has no blank: '{BLANK}' is one in proteins; write [MASK].")
    if others:
        space = " " if " " in template else ""
        return template.replace(BLANK, f"{space}[MASK]{space}")
    return spelled(model, Record(name, "".join(template.split())), blanks=True)


def causal_spellings(model: Any, records: Sequence[Record]) -> list[str]:
    """Return sequences as the tokenizer of a causal model reads them: joined or with spaces.

    The model says what it `knows`. Its tokens may be longer than a letter. Gaps and other signs are
    refused whatever it knows: tokenizers of bytes know all of them.
    """
    signs = sorted({letter for record in records for letter in record.sequence})
    letters = {sign for sign in signs if sign.isascii() and sign.isalpha() and model.knows(sign)}
    found = []
    for record in records:
        _check_letters(
            record,
            letters,
            f"'{model.name}' does not know as a letter; take it out, or use another model",
        )
        found.append(next(filter(model.knows, (record.sequence, " ".join(record.sequence))), ""))
        refuse(
            (
                not found[-1],
                f"the tokenizer of '{model.name}' does not read the letters of '{record.name}'.",
            )
        )
    return found


def _check_letters(record: Record, known: Container[str], unknown: str) -> None:
    """Refuse a letter that is not known, by its place."""
    for place, letter in enumerate(record.sequence, 1):
        if letter not in known:
            named = f"'{letter}'" if letter.isprintable() else f"the character U+{ord(letter):04X}"
            named = "a gap '-'" if letter == "-" else named
            raise InputError(f"'{record.name}' has {named} at position {place}, which {unknown}.")


def letters_of(model: MaskedModel) -> dict[str, int]:
    """Return the token of each letter; none of a model whose tokens are longer."""
    ids = sorted({*(~model.forbidden).nonzero().flatten().tolist(), *model.only_given})
    names = [letter(name) for name in model.token_strings(ids)]
    return dict(zip(names, ids, strict=True)) if all(len(name) == 1 for name in names) else {}


def letter(token: str) -> str:
    """Return the letter of a token, as a vocabulary spells it."""
    return token.lstrip(MARKS) or token


def mutations(parent: Sequence[str], tokens: Sequence[str]) -> list[str]:
    """Return where a sequence differs from its parent, such as S31R, counted from 1."""
    return [
        f"{before}{place}{after}"
        for place, (before, after) in enumerate(
            zip(map(letter, parent), map(letter, tokens), strict=True), 1
        )
        if before != after
    ]
