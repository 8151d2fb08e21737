"""The examples of the documentation: read from the pages, run, and compared with what is shown.

A page is run from top to bottom in a folder of its own. Python blocks share one namespace; a block
without a language right after one is its output; `text` is no example. In
console blocks `$` begins a command, and what follows is its output, where `...` stands for
anything in a line and a line `...` for any lines. A comment before a block says what is special
about it:

    <!-- example: not run (REASON) -->   its maskov commands must still parse
    <!-- example: slow -->               run with the slow tests only
    <!-- example: shortened -->          output that is not shown, or not in full
    <!-- example: varies -->             sampled text: only its shape is compared
    <!-- example: file NAME -->          Python of a file, which is there from the beginning
    <!-- example: raises -->             statements that raise; what they raise is their output
    <!-- example: given                  commands that the reader does not see (or: slow given)
    $ COMMAND
    -->

`python tests/doc_examples.py PAGE...` runs pages and writes the outputs of today into them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKS = ("not run", "slow", "shortened", "varies", "file", "raises")


@dataclass(frozen=True)
class Command:
    """A command of a console block; `line` is where its output begins in the page, from 0."""

    text: str
    output: list[str]
    line: int


@dataclass(frozen=True)
class Block:
    """A block of code; `line` is that of its first line of code, from 0."""

    language: str
    lines: list[str]
    line: int
    marks: dict[str, str] = field(default_factory=dict)
    output: list[str] | None = None
    output_line: int = 0

    @property
    def code(self) -> str:
        return "\n".join(self.lines) + "\n"

    def commands(self) -> Iterator[Command]:
        """Yield the commands of a console block."""
        place = 0
        while place < len(self.lines):
            assert self.lines[place].startswith("$ "), f"no command: {self.lines[place]}"
            words = [self.lines[place][2:]]
            place += 1
            while words[-1].endswith("\\"):
                words.append(self.lines[place])
                place += 1
            begin = place
            while place < len(self.lines) and not self.lines[place].startswith("$ "):
                place += 1
            yield Command("\n".join(words), self.lines[begin:place], self.line + begin)


def pages() -> list[Path]:
    """Return every page that may have examples."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the examples of a page: Python and console blocks, and hidden commands."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    marks: dict[str, str] = {}
    place, last = 0, -2  # `last` is the line after which the last block ended
    while place < len(lines):
        line = lines[place]
        place += 1
        if line in ("<!-- example: given", "<!-- example: slow given"):
            end = lines.index("-->", place)
            hidden = {"shortened": ""} | ({"slow": ""} if "slow" in line else {})
            found.append(Block("console", lines[place:end], place, hidden))
            place = end + 1
        elif match := re.fullmatch(r"<!-- example: (.*) -->", line):
            marks = _marks(match[1], page, place)
        elif line.startswith("```"):
            end = lines.index("```", place)
            language = line[3:].strip()
            if language in ("python", "console"):
                found.append(Block(language, lines[place:end], place, marks))
                last = end
            elif language == "" and found and not any(lines[last + 1 : place - 1]) and last > 0:
                block = found.pop()
                assert block.language == "python", f"{page}:{place}: output of what?"
                found.append(
                    Block("python", block.lines, block.line, block.marks, lines[place:end], place)
                )
            else:
                assert language == "text", f"{page}:{place}: neither an example nor text"
                assert not marks, f"{page}:{place}: a mark without an example"
            marks, place = {}, end + 1
        else:
            assert not (line.strip() and marks), f"{page}:{place}: a mark without an example"
    return found


def matches(expected: list[str], actual: list[str]) -> bool:
    """Whether an output is as shown; spaces at the ends of lines do not count."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += re.escape(line.rstrip()).replace(r"\.\.\.", r"[^\n]*") + r"[ ]*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in actual)) is not None


def alike(expected: list[str], actual: list[str]) -> bool:
    """Whether an output has the shape of the one shown: as many lines, and the same header.

    With a line `...` there may be more lines, and the header may stand in any of them.
    """
    shown = [line for line in expected if line != "..."]
    if len(shown) < len(expected):
        return shown[0].split() in [line.split() for line in actual]
    if len(expected) != len(actual):
        return False
    if not expected or not expected[0].startswith("{"):
        return [line.split() for line in expected[:1]] == [line.split() for line in actual[:1]]
    keys = [re.findall(r'"(\w+)":', line.partition(" ...")[0]) for line in expected]
    return all(
        re.findall(r'"(\w+)":', line)[: len(names)] == names
        for line, names in zip(actual, keys, strict=True)
    )


def _marks(text: str, page: Path, line: int) -> dict[str, str]:
    """Read `slow, varies`, `not run (REASON)`, `file NAME`."""
    found: dict[str, str] = {}
    for word in re.split(r",\s*(?![^(]*\))", text):
        name = next((mark for mark in MARKS if word == mark or word.startswith(f"{mark} ")), None)
        assert name is not None, f"{page}:{line}: unknown mark '{word}'"
        found[name] = word.removeprefix(name).strip(" ()")
    if "not run" in found:
        assert found["not run"], f"{page}:{line}: 'not run' needs a reason"
    return found


if __name__ == "__main__":
    import sys

    from doc_runner import refresh

    for name in sys.argv[1:]:
        refresh(Path(name).resolve())
