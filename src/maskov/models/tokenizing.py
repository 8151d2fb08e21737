"""Tokenise with tokenizers that may be anybody's: bounded, and refused in one sentence.

A tokenizer's patterns run in Oniguruma, which gives a match up after ten million steps, less than
a second. It cannot be stopped from outside. So patterns whose steps are known to explode are
refused when a tokenizer is loaded, and one that is given up all the same is a `ModelError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from maskov.errors import ModelError
from maskov.models.hf_logging import silence_transformers

# Repeats of a bounded quantifier from which on it explodes like an unbounded one.
_MANY = 16


def token_ids(tokenizer: Any, text: str | Sequence[str], name: str, **options: Any) -> Any:
    """Return the ids of a text, or of several; errors name the model."""
    try:
        with silence_transformers():
            return tokenizer(text, **options)["input_ids"]
    except BaseException as error:
        # What panics in Rust is no Exception. An incomplete vocabulary fails only here, too.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        first = str(error).partition("\n")[0]
        raise ModelError(f"the tokenizer of '{name}' cannot read a text: {first}") from error


def frame_of(tokenizer: Any, name: str) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    coded = token_ids(tokenizer, tokenizer.mask_token, name)
    place = coded.index(tokenizer.mask_token_id)
    return list(coded[:place]), list(coded[place + 1 :])


def check_tokens(tokenizer: Any, rows: int, name: str) -> None:
    """Refuse a tokenizer with tokens that a network of so many rows does not have."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= rows:
        raise ModelError(
            f"the tokenizer of '{name}' has tokens up to {largest}, its network only {rows} rows "
            "of them; give the tokenizer it was trained with (--tokenizer)."
        )


def embedding_rows(network: Any) -> int:
    """Return how many tokens a network takes; many, if it does not tell."""
    try:
        return int(network.get_input_embeddings().weight.shape[0])
    except (NotImplementedError, AttributeError):
        return 2**31


def check_patterns(tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer with a regular expression that can take exponential time."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return
    for pattern in _patterns(json.loads(backend.to_str()) | {"model": None}):
        if explodes(pattern):
            shown = pattern if len(pattern) <= 60 else pattern[:60] + "..."
            raise ModelError(
                f"the tokenizer of '{name}' has the regular expression '{shown}', which can take "
                "exponential time: a repeat within a repeat; give another tokenizer."
            )


def _patterns(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if isinstance(data.get("Regex"), str):
            yield data["Regex"]
        data = list(data.values())
    if isinstance(data, list):
        for value in data:
            yield from _patterns(value)


def explodes(pattern: str, choices: bool = False) -> bool:
    """Whether a group that repeats without bounds has a repeat without bounds in it.

    With `choices`, whatever can match in several ways counts, as in (a|aa)+ or (a?b?)+.
    """
    # For each open group, whether a repeat was seen in it.
    groups, place = [False], 0
    while place < len(pattern):
        sign = pattern[place]
        inner = False
        if sign == "\\":
            place += 2
        elif sign == "[":
            place = _class_end(pattern, place)
        elif sign == "(":
            groups.append(False)
            # A question mark here names the kind of group.
            place += 2 if pattern.startswith("(?", place) else 1
            continue
        elif sign == ")":
            inner = groups.pop() if len(groups) > 1 else False
            place += 1
        else:
            groups[-1] |= choices and sign == "|"
            place += 1
        end, many, possessive = _quantifier(pattern, place)
        if many and inner:
            return True
        several = many or (choices and end > place)
        groups[-1] |= inner or (several and not possessive)
        place = end
    return False


def _class_end(pattern: str, place: int) -> int:
    """Return where a class such as [^a-z[:alpha:]] ends."""
    depth, first = 0, place + 1 + pattern.startswith("[^", place)
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            place += 1
        elif sign == "[":
            depth += 1
        elif sign == "]" and place != first:
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    return place


def _quantifier(pattern: str, place: int) -> tuple[int, bool, bool]:
    """Return where the quantifier here ends, whether it repeats many times, and possessively."""
    end, many = place, False
    if pattern[place : place + 1] in ("*", "+"):
        end, many = place + 1, True
    elif pattern[place : place + 1] == "?":
        end = place + 1
    elif pattern[place : place + 1] == "{":
        close = pattern.find("}", place)
        least, comma, most = pattern[place + 1 : max(close, place)].partition(",")
        if close > place and (least + most).isdecimal():
            end = close + 1
            many = bool(comma) and (not most or int(most) >= _MANY)
    possessive = False
    if end > place and pattern[end : end + 1] in ("?", "+"):
        possessive, end = pattern[end] == "+", end + 1
    return end, many, possessive
