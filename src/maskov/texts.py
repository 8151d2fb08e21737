"""Texts and templates as a model reads them, and which of their tokens must stay.

A template has blanks: `[MASK]` for one token, `[MASK{2,5}]` and `[MASK*]` for an unknown number.
The tokens of texts that must stay are given by a rule for all texts, or by a mask for each:

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

from maskov.constraints.kinds import check_words
from maskov.energies.counting import compiled, whole_word
from maskov.errors import refuse, required
from maskov.fasta import BLANK, letters_of
from maskov.models.base import MaskedModel

# A blank of one token; others have their own bounds.
ONE = (1, 1)
_BLANK = re.compile(r"(\[MASK|<mask)(?:(\*)|\{(\d+),(\d+)\})?(\]|>)")
_ANY_LENGTH = (1, 8)
# Gaps as editions write them: of unknown extent, or of so many characters.
_EDITION = re.compile(r"\[(?:\.\.\.|…|---|- - -|\.(\d{1,3})\.)\]")
# The fewest and the most characters of a blank, spaces not counted; None: any number.
Gap = tuple[int, int] | None

Mask = str | Sequence[bool]
_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
_REGEX = "re:"


def between(model: MaskedModel) -> str:
    """Say how many tokens a model takes."""
    few, most = model.min_length, model.max_length
    return f"exactly {most} tokens" if few == most else f"{few} to {most} tokens"


def read_text(
    model: MaskedModel, text: str, what: str, blanks: bool = False, unknown: bool = False
) -> list[int]:
    """Tokenise a line and refuse what no chain may hold; `what` names it in the complaint."""
    refuse(
        (
            not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text),
            f"{what} is not UTF-8 text.",
        ),
        (
            BLANK in text and not blanks and letters_of(model),
            f"{what} has a blank '{BLANK}'; fill it in, or use `maskov infill`.",
        ),
    )
    ids = model.encode(text)
    refuse(
        (not ids, f"{what} is empty; give at least one word."),
        (
            not model.min_length <= len(ids) <= model.max_length,
            f"{what} has {len(ids)} tokens; '{model.name}' takes {between(model)}. Shorten it or "
            "use another model.",
        ),
        (
            model.mask_id in ids and not blanks,
            f"{what} holds a mask; fill it in, or use `maskov infill`.",
        ),
    )
    control = model.control_ids()
    bad = [
        token for token in ids
        if token != model.mask_id
        and (token in control if unknown else not model.may_stand(token))
    ]  # fmt: skip
    refuse(
        (
            bad,
            f"{what} holds '{''.join(model.token_strings(bad[:1]))}', a special or unknown token, "
            "which no sample may hold; use words of the model's vocabulary.",
        ),
    )
    return ids


def find_blanks(template: str) -> list[tuple[int, int]]:
    """Return the fewest and the most tokens of each blank: [MASK], [MASK*] or [MASK{2,5}]."""
    found = []
    for match in _BLANK.finditer(template):
        few, most = (int(match[3]), int(match[4])) if match[3] else _ANY_LENGTH if match[2] else ONE
        refuse(
            (
                not 1 <= few <= most,
                f"the blank '{match[0]}' has no length: write [MASK{{2,5}}] for 2 to 5 tokens.",
            )
        )
        found.append((few, most))
    return found


def gaps_of(template: str) -> tuple[str, list[Gap]]:
    """Return a template with [MASK*] for [...] and [---], and the characters of each blank.

    [.3.] is a gap of three characters, which are one to three tokens.
    """
    gaps: list[Gap] = [
        (int(match[1]), int(match[1])) if match[1] else None
        for match in re.finditer(f"{_EDITION.pattern}|{_BLANK.pattern}", template)
    ]

    def blank(match: re.Match[str]) -> str:
        most = min(int(match[1] or _ANY_LENGTH[1]), _ANY_LENGTH[1])
        return f"[MASK{{1,{most}}}]"

    return _EDITION.sub(blank, template), gaps


def spans_blank(model: MaskedModel, text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return a text with [MASK] for each token that shares a character with one of the spans."""
    places = required(
        model.token_spans(text), "the tokens are not spelled as the text is: write [MASK] instead."
    )
    for start, end in sorted(spans, reverse=True):
        held = [(a, b) for a, b in places if a < end and start < b]
        refuse((not held, f"there is no token between characters {start} and {end}."))
        text = text[: held[0][0]] + " ".join(["[MASK]"] * len(held)) + text[held[-1][1] :]
    return text


def read_template(
    model: MaskedModel, template: str, line: int
) -> tuple[list[int], list[int], dict[int, tuple[int, int]]]:
    """Return the tokens of a template with its blanks at their smallest, their regions and bounds.

    Blanks of unknown length are regions, which are numbered (−1: any other position); their bounds
    are the fewest and the most tokens, by their place among all blanks. The model's own spelling of
    the mask is a blank, too.
    """
    (mask,) = model.token_strings([model.mask_id])
    template = re.sub(
        f"{_BLANK.pattern}|{re.escape(mask)}",
        lambda match: match[0] if match[1] else "[MASK]",
        template,
    )
    refuse(
        (
            "<mask" in template and model.encode("<mask>") != [model.mask_id],
            f"template {line} has <mask>, which is not a blank of '{model.name}': write [MASK].",
        )
    )
    blanks = find_blanks(template)
    sizes = iter([fewest for fewest, _ in blanks])
    text = _BLANK.sub(lambda match: " ".join([match[1] + match[5]] * next(sizes)), template)
    ids = read_text(model, text, f"template {line}", blanks=True)
    bounds = {place: blank for place, blank in enumerate(blanks) if blank != ONE}
    number = {place: region for region, place in enumerate(bounds)}
    held = [
        number.get(place, -1) for place, (fewest, _) in enumerate(blanks) for _ in range(fewest)
    ]
    refuse(
        (
            model.mask_id not in ids,
            f"template {line} has no blank; write [MASK] where one may stand.",
        ),
        (
            bounds and ids.count(model.mask_id) != len(held),
            f"template {line} spells its blanks in several ways: write [MASK] for each token, and "
            "[MASK{2,5}] for a blank of unknown length.",
        ),
    )
    rest = iter(held if bounds else [-1] * len(ids))
    return ids, [next(rest) if token == model.mask_id else -1 for token in ids], bounds


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
        refuse((not any(found), f"'{pattern}' finds nothing to freeze in any text."))
    else:
        found = _by_words(model, texts, frozen, letters)
    for places, tokens in zip(found, ids, strict=True):
        places |= {place for place, one in enumerate(tokens) if one in model.only_given}
    if frozen is None and not any(found):
        return None
    return tuple(tuple(sorted(places)) for places in found)


def template_masks(
    model: MaskedModel, texts: Sequence[str], templates: Sequence[str]
) -> list[list[bool]]:
    """Return a mask for each text: what its template has, too, is frozen; its blanks are free."""
    refuse(
        (
            len(templates) != len(texts),
            f"there are {len(templates)} templates for {len(texts)} texts: give one each.",
        )
    )
    masks = []
    for line, (text, template) in enumerate(zip(texts, templates, strict=True), 1):
        refuse(
            (
                any(blank != ONE for blank in find_blanks(template)),
                f"template {line} has a blank of unknown length: next to text, write [MASK] for "
                "each token of it.",
            )
        )
        ids = read_text(model, text, f"text {line}")
        held = read_text(model, template, f"template {line}", blanks=True)
        mask = [token != model.mask_id for token in held]
        same = len(ids) == len(held) and all(
            own == other or not frozen for own, other, frozen in zip(ids, held, mask, strict=True)
        )
        refuse(
            (
                not same,
                f"template {line} is not text {line} with blanks: write [MASK] for each of its "
                f"{len(ids)} tokens that may change, and the others as they are.",
            )
        )
        masks.append(mask)
    return masks


def _by_masks(masks: Sequence[Mask], sizes: Sequence[int]) -> list[set[int]]:
    refuse(
        (
            len(masks) != len(sizes),
            f"there are {len(masks)} lines of frozen tokens for {len(sizes)} texts: give one each.",
        ),
        *(
            (
                len(mask) != size,
                f"text {line} has {size} tokens, its line of frozen ones {len(mask)} characters: "
                "give one for each token, '.' where it is free.",
            )
            for line, (mask, size) in enumerate(zip(masks, sizes, strict=False), 1)
        ),
    )
    # In a text `.` is free; any other sign is frozen, and so is True.
    return [
        {place for place, sign in enumerate(mask) if sign not in (".", False)} for mask in masks
    ]


def _by_ranges(rule: str, size: int, line: int) -> set[int]:
    found = set[int]()
    for match in _RANGE.finditer(rule):
        first, last = int(match[1]), int(match[2] or match[1])
        refuse(
            (
                not 1 <= first <= last,
                f"'{match[0].strip()}' is not a range of positions: write 1-25, counted from 1.",
            ),
            (last > size, f"text {line} has {size} tokens: there is no position {last} in it."),
        )
        found |= set(range(first - 1, last))
    return found


def _by_words(model: MaskedModel, texts: Sequence[str], rule: str, letters: bool) -> list[set[int]]:
    words = tuple(word.strip() for word in rule.split(","))
    check_words(words, "freeze")
    found = [set[int]() for _ in texts]
    for word in words:
        # Occurrences of a motif may overlap, as those of words cannot.
        motif = re.compile(f"(?=({re.escape(''.join(word.split()))}))", re.IGNORECASE)
        pattern = motif if letters else whole_word(word)
        places = _by_pattern(model, texts, pattern, letters, group=int(letters))
        refuse((not any(places), f"the word '{word}', which is to be frozen, occurs in no text."))
        found = [known | more for known, more in zip(found, places, strict=True)]
    return found


def _by_pattern(
    model: MaskedModel, texts: Sequence[str], pattern: Any, letters: bool, group: int = 0
) -> list[set[int]]:
    """Return the tokens that share a sign with a match, or with a group of it."""
    found = []
    for line, text in enumerate(texts, 1):
        if letters:
            text = text.replace(" ", "")
        matches = [match.span(group) for match in pattern.finditer(text) if match[group]]
        letter_spans = [(place, place + 1) for place in range(len(text))]
        spans = required(
            letter_spans if letters else model.token_spans(text) if matches else [],
            f"the tokens of text {line} are not spelled as the text is: freeze positions "
            "instead, as in 1-25,40.",
        )
        found.append(
            {
                place
                for place, (start, end) in enumerate(spans)
                if any(start < last and first < end for first, last in matches)
            }
        )
    return found
