"""Turn a folder of text into sentences: `python -m recipes.clean DATA OUT`.

Reads every `*.txt` and `*.txt.xz` in DATA (one paragraph per line, with `= Title =` lines) and
writes OUT, one lower-case sentence per line, in order and without duplicates. It drops titles,
fragments, sentences with gaps left by removed templates, lists of names and other scripts, and
prints how many were dropped for which reason.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path

_ASCII = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "`": "'", "–": "-",
     "—": "-", "−": "-", "‐": "-", "‑": "-", "…": "...", "\u00a0": " ", "\u200b": ""}
)  # fmt: skip
# WikiText separates punctuation within numbers and words.
_JOINED = re.compile(r" @([-,.])@ ")
_SPACE_BEFORE = re.compile(r"\s+(?=[,.;:!?)\]])")
_END = re.compile(r"""(?<=[.!?])["')\]]*\s+(?=["'(\[]*[A-Z0-9])""")
_ABBREVIATED = re.compile(
    r"(?:^|[\s(\"'])(?:[A-Za-z]|[A-Z]\.[A-Z]|[Mm]rs?|[Dd]r|St|Ste|Jr|Sr|Lt|Gen|Col|Capt|Cpt|Sgt|Maj"
    r"|Prof|Rev|Hon|Gov|Sen|Rep|Pres|No|Nos|Vol|vol|vs|etc|e\.g|i\.e|cf|ca|approx|Inc|Ltd|Co|Corp"
    r"|Bros|Mt|Ft|Ave|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Ph\.D|U\.S|U\.K|pp?|ed|eds|fl)\.$"
)
_LAST = re.compile(r"[.!?][\"')\]]*$")
_FIRST = re.compile(r"^[\"'(\[]*[A-Z0-9]")
# Gaps left by removed templates and links: "the of", "( ,", ", .", empty quotes.
_HOLE = re.compile(
    r"\(\s*[,;:.)]|[,;:]\s*[,;:.)]|\"\s*\"|''|\(\s|^[,.;:]|\.\.(?!\.)"
    r"|\b(?:the|an?|of|and|or|from|at|to|with|for|between|than|is|was|were|are|about|its|their)[,.;:)]"
    r"|\b(?:the|an?) (?:the|an?|of|and|or|in|on|at|to|by|from|for|with|is|was|were|are|which|has)\b"
    r"|\b(?:the|an?) had\b"
    r"|\b(?:of|from|between|about|approximately|around) (?:and|or|of|to|from|with|by|is|was|in)\b"
    r"|\b(?:about|approximately|roughly|nearly|up to) (?:long|wide|tall|high|deep|north|south|east"
    r"|west)\b(?!-)|\b(?:height|length|speed|elevation|depth) of (?:at|on|above|per|while|when)\b"
    r"|[{}|<>=\\^~_*#]|https?:|www\.|\bisbn\b"
)
_WORD = re.compile(r"[A-Za-z]+")
SHORTEST, LONGEST = 4, 50  # in words


def lines_of(folder: Path, skip: Collection[str] = ()) -> Iterator[str]:
    """Yield every line of the text files in a folder, except those in `skip`, or of one file."""
    files = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    for file in files:
        if file.name.removesuffix(".xz").removesuffix(".txt") in skip:
            continue
        if file.name.endswith(".txt.xz"):
            with lzma.open(file, "rt", encoding="utf-8") as stream:
                yield from stream
        elif file.suffix == ".txt":
            with open(file, encoding="utf-8") as stream:
                yield from stream


def to_ascii(text: str) -> str:
    """Convert quotes, dashes and accents to ASCII, and normalise spaces."""
    text = _JOINED.sub(r"\1", text.translate(_ASCII))
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return _SPACE_BEFORE.sub("", " ".join(text.split()))


def split_sentences(paragraph: str) -> list[str]:
    """Split at sentence ends, but not after abbreviations and initials."""
    sentences: list[str] = []
    begin = 0
    for match in _END.finditer(paragraph):
        end = match.start() + len(match.group().rstrip())
        piece = paragraph[begin:end]
        if _ABBREVIATED.search(piece):
            continue
        sentences.append(piece.strip())
        begin = match.end()
    return [*sentences, paragraph[begin:].strip()]


def defect(sentence: str) -> str | None:
    """Return why a sentence is dropped, or None."""
    words = sentence.split()
    if not SHORTEST <= len(words) <= LONGEST:
        return "length"
    if not _LAST.search(sentence) or not _FIRST.search(sentence):
        return "fragment"
    if not sentence.isascii():
        return "other script"
    if sentence.count("(") != sentence.count(")") or sentence.count('"') % 2:
        return "unbalanced"
    if _HOLE.search(sentence.lower()):
        return "hole"
    letters = sum(len(word) for word in _WORD.findall(sentence))
    if letters < 0.7 * sum(map(len, words)):
        return "few letters"
    capitals = sum(word[0].isupper() for word in words)
    if capitals > 0.6 * len(words):
        return "list of names"
    return None


def clean_paragraph(line: str) -> list[tuple[str | None, str]]:
    """Return each sentence of a line with its defect, if any."""
    line = line.strip()
    if not line or line.startswith("="):
        return []
    return [(defect(piece), piece) for piece in split_sentences(to_ascii(line)) if piece]


def sentences_of(lines: Iterable[str], dropped: Counter[str], processes: int = 2) -> Iterator[str]:
    """Yield good sentences in lower case, without duplicates; count the others by reason."""
    seen: set[bytes] = set()
    with Pool(processes) as pool:
        for pieces in pool.imap(clean_paragraph, lines, chunksize=512):
            for reason, piece in pieces:
                sentence = piece.lower()
                key = hashlib.blake2b(sentence.encode(), digest_size=8).digest()
                if reason is None and key in seen:
                    reason = "repeated"
                if reason is not None:
                    dropped[reason] += 1
                    continue
                seen.add(key)
                yield sentence


def main(arguments: list[str] | None = None) -> None:
    """Clean a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of *.txt and *.txt.xz, or one such file")
    parser.add_argument("out", type=Path, help="file to write; compressed if it ends in .xz")
    parser.add_argument("--skip", nargs="*", default=[], help="files to skip, without extension")
    parser.add_argument("--exclude", type=Path, help="file of sentences to drop")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    if not given.data.exists():
        parser.error(f"'{given.data}' not found")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    opened = lzma.open if given.out.suffix == ".xz" else open
    dropped: Counter[str] = Counter()
    excluded = set(given.exclude.read_text("utf-8").splitlines()) if given.exclude else set()
    kept = words = 0
    with opened(given.out, "wt", encoding="utf-8") as stream:
        for sentence in sentences_of(lines_of(given.data, given.skip), dropped, given.processes):
            if sentence in excluded:
                dropped["held out"] += 1
                continue
            stream.write(sentence + "\n")
            kept += 1
            words += sentence.count(" ") + 1
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.most_common())
    print(f"kept {kept:,} sentences, {words:,} words; dropped: {reasons}", file=sys.stderr)
    if not kept:
        raise SystemExit(f"'{given.data}' has no usable sentence")


if __name__ == "__main__":
    main()
