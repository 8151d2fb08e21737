"""Clean sentence pairs and hold some out: `python -m recipes.translation.pairs DATA OUT`.

Reads the line-aligned files DATA/deen/{europarl,tatoeba}.{de,en}.xz and DATA/roen/train.{ro,en}.xz
and writes, for de-en and ro-en, OUT/PAIR.train.{src,tgt}.xz and OUT/PAIR.valid.{src,tgt}, in the
original order, and OUT/pairs.json, which counts the pairs read and dropped by reason.

`tidy` normalises each side: NFC, single spaces, straight quotes, comma-below ș and ț, no invisible
characters. `fix` then removes a label of the speaker ("Berichterstatter. – "), which is mostly on
one side only, and joins punctuation that a tokenizer had separated.

A pair is dropped if
- a side is not UTF-8, has a control character or U+FFFD, or is empty;
- its sides are equal, or a side has more than 60 words;
- a side has more than 6 words and more than 2.5 times those of the other;
- a side has markup, an address, a menu path or a placeholder (`<a name=`, `[[`, `▸`, `$(ARG1)`);
- a side has gaps of removed templates (", ,"), or a stray quotation mark;
- a side was cut in the middle of a sentence, at a German "Mio." or a date;
- less than half of a side is letters, or a side has non-Latin letters;
- a number of four or more digits, such as a year, is on one side only (misaligned);
- it is a duplicate;
- a side equals a line of a file in DATA/test, or of a held-out pair, ignoring case and punctuation.
  If the target has fewer than 5 words, both sides must: "Thank you." recurs.

The Europarl pairs have at most 30 words per side. Of long German sentences that keeps those with
short English, often with a missing clause, and a model would learn to be short. Therefore targets
that are as far below the usual length as the limit is above it are dropped too.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from multiprocessing import Pool
from pathlib import Path

Pair = tuple[str, str]

# For each language pair: folder, corpora, and number of held-out pairs. Multi30k is left out: it is
# for tests and experiments, and no shipped model may be trained on it.
SOURCES = {
    "de-en": ("deen", ("europarl", "tatoeba"), 1000),
    "ro-en": ("roen", ("train",), 500),
}
# English references (newstest, newsdev) have straight quotes only, Europarl both kinds. Guillemets,
# dashes and ellipses stay. A Turkish ş changes too, because the rule is the same for all languages.
ALIKE = {
    "“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'", "‚": "'", "‛": "'",
    "ş": "ș", "ţ": "ț", "Ş": "Ș", "Ţ": "Ț",
}  # fmt: skip
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
# The tokenizer writes a space as ▁, so ▁ counts as a space in text too.
SPACE = r"[\s▁]+"
LONGEST, RATIO, SHORT, COMMON = 60, 2.5, 6, 5  # in words, except the ratio
# The maximum words per side in the data, and the English words per German word in complete
# sentences of 20 to 30 words (europarl.dev: 1.07-1.10).
LET_THROUGH, USUAL = {"de-en": 30}, 1.08

_TABLE = str.maketrans({**ALIKE, **dict.fromkeys(INVISIBLE, "")})
_SPACE = re.compile(SPACE)
_BROKEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd]")  # all controls but the tab
_LABEL = re.compile(r"^[^.!?:,;]{1,90}\. ?[–—] (?:\([A-Z]{2}\) )?(?=\S)")
_APART = re.compile(r" (?=[,.;:!?)\]](?:\W|$))|(?<=[(\[]) | (?='(?:s|re|ve|ll|d|m)\b)")
_QUOTED = re.compile(r"""(?<!\S)(["']) ([^"']+?) ?\1(?!\w)|(?<!\S)(["'])([^"']+?) \3(?!\w)""")
_STRAY = re.compile(r"""(?<!\S)["'](?!\S)""")
_MARKUP = re.compile(
    r"[\\{}|~_=▸→<>^@]|\[ ?\[|\] ?\]|&\w+;|' '|https?:|www\.|thumb(?:right|left)"
    r"|%[A-Z\d]|\$[A-Za-z({]|[a-z]\$|#\w|Translation results"
)
_HOLE = re.compile(r"[,;(] ?[,;.)]|^[,;:.!?)\]]")
_CUT = re.compile(
    r"^EUR (?!\d)|\b(?:Mio|Mrd|Nr)\.$"
    r"|^\d+\. (?:Januar|Februar|März|April|Mai|Ju[nl]i|August|(?:Septem|Okto|Novem|Dezem)ber)"
)
_SEPARATOR = re.compile(r"(?<=\d)[., '](?=\d{3}(?!\d))")
# Without decades ("the 1990s", "die 90er Jahre") and round numbers ("90 mii"), which vary.
_NUMBER = re.compile(r"\b\d+(?!000\b)\d{3}\b")
_NOT_LETTER = re.compile(r"[\W\d_]+")
_OTHER_SCRIPT = re.compile(r"[\u0370-\u1dff\u1f00-\u1fff\u2c00-\ua71f\uac00-\ufaff]")
_NOT_KEPT = re.compile(r"[\W_]+")


def tidy(text: str) -> str:
    """Normalise a line exactly as the tokenizer does."""
    return _SPACE.sub(" ", unicodedata.normalize("NFC", text).translate(_TABLE)).strip()


def fix(text: str) -> str:
    """Remove a label of the speaker, and join separated punctuation."""
    text = _APART.sub("", _LABEL.sub("", text)).replace("''", '"')
    if text.endswith("..") and not text.endswith("..."):
        text = text[:-1]
    if '"' not in text and "'" not in text:
        return text  # the common case; the search below is slow
    return _QUOTED.sub(lambda m: f"{m[1]}{m[2]}{m[1]}" if m[1] else f"{m[3]}{m[4]}{m[3]}", text)


def numbers_agree(source: str, target: str) -> bool:
    """Whether the long numbers of each side occur in the other, ignoring separators."""
    source, target = _SEPARATOR.sub("", source), _SEPARATOR.sub("", target)
    return all(number in target for number in _NUMBER.findall(source)) and all(
        number in source for number in _NUMBER.findall(target)
    )


def defect(source: str, target: str) -> str | None:
    """Return why a normalised pair is dropped, or None."""
    if not source or not target:
        return "empty"
    if source == target:
        return "equal sides"
    fewer, more = sorted((source.count(" ") + 1, target.count(" ") + 1))
    if more > LONGEST:
        return "long"
    if more > SHORT and more > RATIO * fewer:
        return "ratio"
    for side in (source, target):
        if _MARKUP.search(side):
            return "markup"
        if _HOLE.search(side) or _STRAY.search(side):
            return "hole"
        if _CUT.search(side):
            return "cut"
        if 2 * len(_NOT_LETTER.sub("", side)) < len(side) - side.count(" "):
            return "few letters"
        if _OTHER_SCRIPT.search(side):
            return "other script"
    if not numbers_agree(source, target):
        return "numbers differ"
    return None


def short_for_its_source(pair: Pair, most: int) -> bool:
    """Whether a target is as far below the usual length as `most` words are above it."""
    source, target = (side.count(" ") + 1 for side in pair)
    return target < 2 * USUAL * source - most


def key(text: str) -> str:
    """Return the key by which lines are compared: letters and digits, without case."""
    return _NOT_KEPT.sub("", text.casefold())


def known(pair: Pair, lines: set[str]) -> bool:
    """Whether a pair contains one of the lines, given by their keys."""
    contained = [key(side) in lines for side in pair]
    return all(contained) if len(pair[1].split()) < COMMON else any(contained)


def keys_of(folder: Path) -> set[str]:
    """Return the key of every line of every file in a folder."""
    keys = {
        key(form)
        for file in folder.iterdir()
        for line in file.read_text("utf-8", errors="replace").split("\n")
        for form in (tidy(line), fix(tidy(line)))
    }
    return keys - {""}


def raw_lines(
    folder: Path, corpora: Iterable[str], languages: Iterable[str], read: Counter[str]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the aligned lines of some corpora, and count them in `read`."""
    for corpus in corpora:
        first, second = (folder / f"{corpus}.{language}.xz" for language in languages)
        with lzma.open(first) as left, lzma.open(second) as right:
            for one, other in zip_longest(left, right):
                if one is None or other is None:
                    raise SystemExit(f"'{first}' and '{second}' have different numbers of lines")
                read[corpus] += 1
                yield one, other


def examine(raw: tuple[bytes, bytes]) -> tuple[str | None, Pair]:
    """Return a normalised pair with its defect, if any."""
    try:
        source, target = (side.decode("utf-8").rstrip("\r\n") for side in raw)
    except UnicodeDecodeError:
        return "not UTF-8", ("", "")
    if _BROKEN.search(source) or _BROKEN.search(target):
        return "broken character", ("", "")
    pair = fix(tidy(source)), fix(tidy(target))
    return defect(*pair), pair


def clean(
    lines: Iterable[tuple[bytes, bytes]], tests: set[str], out: Counter[str], processes: int = 2
) -> list[Pair]:
    """Return the good pairs without duplicates; count the others by reason in `out`."""
    kept: dict[Pair, None] = {}
    with Pool(processes) as pool:
        for reason, pair in pool.imap(examine, lines, chunksize=2048):
            if reason is None and pair in kept:
                reason = "repeated"
            if reason is None and known(pair, tests):
                reason = "in a test file"
            if reason is None:
                kept[pair] = None
            else:
                out[reason] += 1
    return list(kept)


def hold_out(pairs: list[Pair], count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split into training pairs and `count` held-out pairs that the former do not contain."""
    chosen = set(random.Random(seed).sample(range(len(pairs)), min(count, len(pairs))))
    valid = [pairs[i] for i in sorted(chosen)]
    lines = {key(side) for pair in valid for side in pair}
    rest = (pair for i, pair in enumerate(pairs) if i not in chosen)
    return [pair for pair in rest if not known(pair, lines)], valid


def write(pairs: list[Pair], stem: Path, suffix: str = "") -> None:
    """Write one file per side, one sentence per line."""
    for side, name in enumerate(("src", "tgt")):
        text = "".join(pair[side] + "\n" for pair in pairs).encode("utf-8")
        file = stem.with_name(f"{stem.name}.{name}{suffix}")
        file.write_bytes(lzma.compress(text) if suffix == ".xz" else text)


def main(arguments: list[str] | None = None) -> None:
    """Clean both pairs of languages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with deen, roen and test")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of held-out pairs")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    for name in ("deen", "roen", "test"):
        if not (given.data / name).is_dir():
            parser.error(f"there is no folder '{given.data / name}'")
    given.out.mkdir(parents=True, exist_ok=True)
    tests = keys_of(given.data / "test")
    report = {}
    for name, (folder, corpora, count) in SOURCES.items():
        dropped: Counter[str] = Counter()
        read: Counter[str] = Counter()
        lines = raw_lines(given.data / folder, corpora, name.split("-"), read)
        pairs = clean(lines, tests, dropped, given.processes)
        train, valid = hold_out(pairs, count, given.seed)
        dropped["gives away a held-out pair"] = len(pairs) - len(train) - len(valid)
        if name in LET_THROUGH:
            before = len(train)
            train = [pair for pair in train if not short_for_its_source(pair, LET_THROUGH[name])]
            dropped["short for its source"] = before - len(train)
        write(train, given.out / f"{name}.train", ".xz")
        write(valid, given.out / f"{name}.valid")
        report[name] = {
            "read": dict(read),
            "dropped": dict(dropped.most_common()),
            "train": len(train),
            "valid": len(valid),
            "words": [sum(pair[side].count(" ") + 1 for pair in train) for side in (0, 1)],
        }
        print(f"{name}: {json.dumps(report[name])}", file=sys.stderr)
    (given.out / "pairs.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
