"""Which part of a text each token stands for, so that tokens can be shaded in readable text."""

from __future__ import annotations

from collections.abc import Sequence

# How vocabularies mark that a token begins or goes on within a word.
_BEFORE = ("##", "Ġ", "▁")
_AFTER = ("</w>", "@@")


def pieces(text: str, tokens: Sequence[str]) -> list[str] | None:
    """Cut a text into one piece a token, spaces before it included; nothing where they disagree.

    Put together the pieces are the text. A decoder may have changed more than case and spaces;
    tokens are then better shown as they are.
    """
    found: list[str] = []
    at = 0
    for token in tokens:
        end = _end(text, at, _spelling(token))
        if end is None:
            return None
        found.append(text[at:end])
        at = end
    if not found or text[at:].strip():
        return None
    found[-1] += text[at:]
    return found


def _spelling(token: str) -> str:
    for mark in _BEFORE:
        if token != mark:
            token = token.removeprefix(mark)
    for mark in _AFTER:
        if token != mark:
            token = token.removesuffix(mark)
    return token


def _end(text: str, at: int, word: str) -> int | None:
    """Return where a word ends that begins here, after any spaces."""
    while at < len(text) and text[at].isspace():
        at += 1
    end = at + len(word)
    return end if word and text[at:end].casefold() == word.casefold() else None
