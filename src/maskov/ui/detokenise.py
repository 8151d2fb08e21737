"""Texts as people write them: tokenizers put spaces around signs, which no reader wants to see.

Only what is shown changes. Samples, energies and files keep the text that the tokenizer decodes.
"""

import re
from collections.abc import Sequence
from typing import Any

from maskov.models.tokens import spelling, token_spans, words_of

_NO_SPACE_BEFORE = frozenset(".,;:!?%)]}…»”’")
_NO_SPACE_AFTER = frozenset("([{$£€«“¿¡")
_JOINING = frozenset("-/")
_QUOTES = frozenset("\"'")
_SHORT_FORMS = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
# What a vocabulary puts before a word that follows a space.
_SPACES = ("Ġ", "▁")
_THOUSAND = 3
_SPECIAL = re.compile(r"[\[<].+[\]>]")


def detokenised(text: str, tokens: Sequence[str]) -> str:
    """Return a decoded text as people write it; as it is, if its tokens are spelled otherwise."""
    spans = readable_spans(text, tokens)
    return text if spans is None else "".join(spans)


def readable_spans(text: str, tokens: Sequence[str]) -> list[str] | None:
    """Split the readable text into one span per token, with the space before it."""
    spans = token_spans(text, tokens)
    if spans is None or any(token.startswith(_SPACES) for token in tokens):
        return spans  # such a vocabulary knows its spaces
    words = [span.strip() for span in spans]
    marked = any(token.startswith("##") for token in tokens)
    spaces = [
        not (token.startswith("##") and len(token) > 2) if marked else span[:1].isspace()
        for token, span in zip(tokens, spans, strict=True)
    ]
    return [" " * space + word for word, space in zip(words, respaced(words, spaces), strict=True)]


def spelled(tokens: Sequence[str]) -> list[str]:
    """Return tokens without their text as people write them: one span each, with its space."""
    words = ["␣" if token in _SPACES else spelling([token]) for token in tokens]
    spaces = [bool(place) and not inside for place, inside in enumerate(_inside_words(tokens))]
    if not any(token.startswith(_SPACES) for token in tokens):
        spaces = respaced(words, spaces)
    return [" " * space + word for word, space in zip(words, spaces, strict=True)]


def _inside_words(tokens: Sequence[str]) -> list[bool]:
    """Return which tokens continue a word, by the marks of the vocabulary."""
    numbers = [-1, *words_of("", tokens)]
    return [
        number == before and not _SPECIAL.fullmatch(token)
        for number, before, token in zip(numbers[1:], numbers, tokens, strict=False)
    ]


def changed_parts(
    before: Sequence[str], after: Sequence[str], places: Sequence[tuple[int, int, int]]
) -> list[dict[str, Any]]:
    """Return the parts of a sequence that a step changes, widened to whole words.

    Of each place, its start and the numbers of its tokens before and after the step are given. A
    part is `first` to `last` of the tokens before; it reads `from` before and `to` after the step.
    """
    shown = spelled(before), spelled(after)
    # A sign that is written close to a word is not a part of it; nothing continues beyond the end.
    old, new = (
        [
            inside and span[:1].isalnum()
            for inside, span in zip(_inside_words(one), spans, strict=True)
        ]
        + [False] * (len(before) + len(after))
        for one, spans in zip((before, after), shown, strict=True)
    )
    parts: list[tuple[int, int]] = []
    longer = 0  # how much the sequence has grown so far
    for start, size, new_size in sorted(places):
        first, last = start, start + size
        while first > 0 and (old[first] or new[first + longer]):
            first -= 1
        longer += new_size - size
        while last < len(before) and (old[last] or new[last + longer]):
            last += 1
        if parts and first <= parts[-1][1]:
            first, last = parts[-1][0], max(parts.pop()[1], last)
        parts.append((first, last))
    return [
        {
            "first": first, "last": last, "from": "".join(shown[0][first:last]).strip(),
            "to": "".join(shown[1][first : last + longer]).strip(),
            "space": first > 0 and (first == len(before) or shown[0][first][:1] == " "),
        }
        for first, last in parts
    ]  # fmt: skip


def respaced(words: Sequence[str], spaces: Sequence[bool]) -> list[bool]:
    """Return before which words a space stands, given where the tokenizer puts one."""
    if all(len(word) == 1 and word.isupper() for word in words):
        return [False] * len(words)  # the letters of a protein
    kept = [bool(space) and place > 0 for place, space in enumerate(spaces)]
    opened = dict.fromkeys(_QUOTES, False)
    for place, word in enumerate(words):
        before, after = words[place - 1] if place else "", "".join(words[place + 1 : place + 2])
        apart = place + 1 < len(words) and bool(spaces[place + 1])
        numbers = before.isdecimal() and after.isdecimal()
        between = before[-1:].isalnum() and after[:1].isalnum()
        short = word == "'" and before[-1:].isalnum() and after in _SHORT_FORMS
        joins = short or (apart and word in _JOINING and between)
        quote = word in _QUOTES and not joins
        if word in _NO_SPACE_BEFORE or joins or (quote and opened[word]):
            kept[place] = False
        if joins or (apart and (
            word in _NO_SPACE_AFTER
            or (quote and not opened[word])
            or (numbers and (word == "." or (word == "," and len(after) == _THOUSAND)))
        )):  # fmt: skip
            kept[place + 1] = False
        if quote:
            opened[word] = not opened[word]
    return kept
