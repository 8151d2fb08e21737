"""Which tokens of the texts that chains start from must stay.

They are given by a rule for all texts, or by a mask for each:

    "1-25,40"          positions, counted from 1
    "river, bridge"    words, wherever they occur
    "re:PATTERN"       what a regular expression finds
    ["..##..", ...]    a sign for each token of each text: `.` is free, any other is frozen

In sequences of letters, such as proteins, a word is a motif: some letters next to each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from maskov.constraints.words import check_words
from maskov.energies.words import compiled, whole_word
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.starts import ONE, find_blanks, read_text

Mask = str | Sequence[bool]
_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
_REGEX = "re:"
_FREE = "."


def frozen_positions(
    model: MaskedModel,
    texts: Sequence[str],
    frozen: str | Sequence[Mask] | None,
    letters: bool = False,
) -> tuple[tuple[int, ...], ...] | None:
    """Return the positions of each text, counted from 0, that must stay, if any must.

    Tokens that the model never proposes stay, too: a chain that left one could not come back.
    `letters` says that each token is a letter; spaces between them are the tokenizer's own.
    """
    if frozen is None and not model.only_given:
        return None
    ids = [read_text(model, text, f"text {line}") for line, text in enumerate(texts, 1)]
    sizes = list(map(len, ids))
    if frozen is None:
        found = [set[int]() for _ in texts]
    elif not isinstance(frozen, str):
        found = _by_masks(frozen, sizes)
    elif all(_RANGE.fullmatch(part) for part in frozen.split(",")):
        found = [_by_ranges(frozen, size, line) for line, size in enumerate(sizes, 1)]
    elif frozen.startswith(_REGEX):
        pattern = frozen.removeprefix(_REGEX)
        found = _by_pattern(model, texts, compiled(pattern), letters)
        if not any(found):
            raise InputError(f"'{pattern}' finds nothing to freeze in any text.")
    else:
        found = _by_words(model, texts, frozen, letters)
    for places, tokens in zip(found, ids, strict=True):
        places |= {place for place, one in enumerate(tokens) if one in model.only_given}
    if frozen is None and not any(found):
        return None
    for line, (places, size) in enumerate(zip(found, sizes, strict=True), 1):
        if len(places) == size:
            raise InputError(f"every token of text {line} is frozen: leave one free.")
    return tuple(tuple(sorted(places)) for places in found)


def template_masks(
    model: MaskedModel, texts: Sequence[str], templates: Sequence[str]
) -> list[list[bool]]:
    """Return a mask for each text: what its template has, too, is frozen; its blanks are free."""
    if len(templates) != len(texts):
        raise InputError(
            f"there are {len(templates)} templates for {len(texts)} texts: give one each."
        )
    masks = []
    for line, (text, template) in enumerate(zip(texts, templates, strict=True), 1):
        if any(blank != ONE for blank in find_blanks(template)):
            raise InputError(
                f"template {line} has a blank of unknown length: next to text, write [MASK] for "
                "each token of it."
            )
        ids = read_text(model, text, f"text {line}")
        held = read_text(model, template, f"template {line}", blanks=True)
        mask = [token != model.mask_id for token in held]
        same = len(ids) == len(held) and all(
            own == other or not frozen for own, other, frozen in zip(ids, held, mask, strict=True)
        )
        if not same:
            raise InputError(
                f"template {line} is not text {line} with blanks: write [MASK] for each of its "
                f"{len(ids)} tokens that may change, and the others as they are."
            )
        masks.append(mask)
    return masks


def _by_masks(masks: Sequence[Mask], sizes: Sequence[int]) -> list[set[int]]:
    if len(masks) != len(sizes):
        raise InputError(
            f"there are {len(masks)} lines of frozen tokens for {len(sizes)} texts: give one each."
        )
    found = []
    for line, (mask, size) in enumerate(zip(masks, sizes, strict=True), 1):
        if len(mask) != size:
            raise InputError(
                f"text {line} has {size} tokens, its line of frozen ones {len(mask)} characters: "
                "give one for each token, '.' where it is free."
            )
        signs = [sign != _FREE for sign in mask] if isinstance(mask, str) else mask
        found.append({place for place, held in enumerate(signs) if held})
    return found


def _by_ranges(rule: str, size: int, line: int) -> set[int]:
    found = set[int]()
    for part in rule.split(","):
        match = _RANGE.fullmatch(part)
        assert match is not None
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last:
            raise InputError(
                f"'{part.strip()}' is not a range of positions: write 1-25, counted from 1."
            )
        if last > size:
            raise InputError(f"text {line} has {size} tokens: there is no position {last} in it.")
        found |= set(range(first - 1, last))
    return found


def _by_words(model: MaskedModel, texts: Sequence[str], rule: str, letters: bool) -> list[set[int]]:
    words = tuple(word.strip() for word in rule.split(","))
    check_words(words, "freeze")
    found = [set[int]() for _ in texts]
    for word in words:
        if letters:
            places = _by_motif(texts, word)
        else:
            places = _by_pattern(model, texts, whole_word(word), letters)
        if not any(places):
            raise InputError(f"the word '{word}', which is to be frozen, occurs in no text.")
        found = [known | more for known, more in zip(found, places, strict=True)]
    return found


def _by_motif(texts: Sequence[str], word: str) -> list[set[int]]:
    """Return the letters of every occurrence of a motif; occurrences may overlap."""
    motif, found = "".join(word.split()).upper(), []
    for text in texts:
        sequence = text.replace(" ", "").upper()
        starts = [at for at in range(len(sequence)) if sequence.startswith(motif, at)]
        found.append({start + offset for start in starts for offset in range(len(motif))})
    return found


def _by_pattern(
    model: MaskedModel, texts: Sequence[str], pattern: Any, letters: bool
) -> list[set[int]]:
    """Return the tokens that share a sign with a match."""
    found = []
    for line, text in enumerate(texts, 1):
        if letters:
            text = text.replace(" ", "")
        matches = [match.span() for match in pattern.finditer(text) if match[0]]
        if letters:
            found.append({place for first, last in matches for place in range(first, last)})
            continue
        spans = model.token_spans(text) if matches else []
        if spans is None:
            raise InputError(
                f"the tokens of text {line} are not spelled as the text is: freeze positions "
                "instead, as in 1-25,40."
            )
        found.append(
            {
                place
                for place, (start, end) in enumerate(spans)
                if any(start < last and first < end for first, last in matches)
            }
        )
    return found
