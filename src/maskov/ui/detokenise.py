"""Texts as people write them: tokenizers put spaces around signs, which no reader wants to see.

Only what is shown changes. Samples, energies and files keep the text that the tokenizer decodes.
`spelled` in `viewer/static/tokens.js` follows the same rules for chains that move.
"""

from __future__ import annotations

from collections.abc import Sequence

from maskov.models.tokens import token_spans

_NO_SPACE_BEFORE = frozenset(".,;:!?%)]}…»”’")
_NO_SPACE_AFTER = frozenset("([{$£€«“¿¡")
_JOINING = frozenset("-/")
_QUOTES = frozenset("\"'")
_SHORT_FORMS = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
# What a vocabulary puts before a word that follows a space.
_SPACES = ("Ġ", "▁")
_THOUSAND = 3


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
    if any(token.startswith("##") for token in tokens):
        spaces = [not (token.startswith("##") and len(token) > 2) for token in tokens]
    else:
        spaces = [span[:1].isspace() for span in spans]
    return [" " * space + word for word, space in zip(words, respaced(words, spaces), strict=True)]


def respaced(words: Sequence[str], spaces: Sequence[bool]) -> list[bool]:
    """Return before which words a space stands, given where the tokenizer puts one."""
    if all(len(word) == 1 and word.isupper() for word in words):
        return [False] * len(words)  # the letters of a protein
    kept = [bool(space) and place > 0 for place, space in enumerate(spaces)]
    quoted = dict.fromkeys(_QUOTES, False)
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        after = words[place + 1] if place + 1 < len(words) else ""
        apart = place + 1 < len(words) and bool(spaces[place + 1])
        if word in _NO_SPACE_BEFORE:
            kept[place] = False
            decimal = word == "." or (word == "," and len(after) == _THOUSAND)
            if apart and decimal and before.isdecimal() and after.isdecimal():
                kept[place + 1] = False
        elif word in _NO_SPACE_AFTER and apart:
            kept[place + 1] = False
        elif (word in _JOINING and apart and before[-1:].isalnum() and after[:1].isalnum()) or (
            word == "'" and before[-1:].isalnum() and after in _SHORT_FORMS
        ):
            kept[place] = kept[place + 1] = False
        elif word in _QUOTES:
            if quoted[word]:
                kept[place] = False
            elif apart:
                kept[place + 1] = False
            quoted[word] = not quoted[word]
    return kept
