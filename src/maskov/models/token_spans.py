"""Find the span of each token in a text, so that tokens can be shaded or chosen there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

# Markers of word starts and continuations in vocabularies.
_BEFORE = ("##", "Ġ", "▁")
_AFTER = ("</w>", "@@")


def token_spans(text: str, tokens: Sequence[str]) -> list[str] | None:
    """Split a text into one span per token, with the spaces before it; None if they disagree.

    The concatenated spans are the text. They disagree if the decoder changed more than case and
    spaces.
    """
    spans: list[str] = []
    at = 0
    for token in tokens:
        end = _end(text, at, _spelling(token))
        if end is None:
            return None
        spans.append(text[at:end])
        at = end
    if not spans or text[at:].strip():
        return None
    spans[-1] += text[at:]
    return spans


def words_of(text: str, tokens: Sequence[str]) -> list[int]:
    """Return the number of the word, between spaces, that each token belongs to, from 0.

    Where the text does not show it, as for unknown words, the marks of the vocabulary do.
    """
    spans = token_spans(text, tokens)
    if spans is not None:
        starts = [span[:1].isspace() for span in spans]
    elif any(token.startswith(("Ġ", "▁")) for token in tokens):
        starts = [token.startswith(("Ġ", "▁")) for token in tokens]
    else:
        before = ["", *tokens][: len(tokens)]
        starts = [
            not token.startswith("##") and not previous.endswith("@@")
            for token, previous in zip(tokens, before, strict=True)
        ]
    return [number - starts[0] for number in accumulate(starts)] if starts else []


def spelling(tokens: Sequence[str]) -> str:
    """Return the tokens of a word as one text."""
    return "".join(map(_spelling, tokens))


def _spelling(token: str) -> str:
    for mark in _BEFORE:
        if token != mark:
            token = token.removeprefix(mark)
    for mark in _AFTER:
        if token != mark:
            token = token.removesuffix(mark)
    return token


def _end(text: str, at: int, word: str) -> int | None:
    """Return where a word that starts here, after any spaces, ends; None if it does not."""
    while at < len(text) and text[at].isspace():
        at += 1
    end = at + len(word)
    return end if word and text[at:end].casefold() == word.casefold() else None
