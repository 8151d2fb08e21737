"""Reading input and printing results."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from maskov.errors import InputError
from maskov.options.option import FIRST, option
from maskov.ui.escaping import PrintableConsole, json_printable, printable

if TYPE_CHECKING:
    from maskov.fasta import Record
    from maskov.runs import Run, Sample


@dataclass(frozen=True)
class OutputOptions:
    """What commands that run chains print."""

    json: Annotated[bool, option("--json", "JSON lines on standard output", FIRST)] = False
    quiet: Annotated[bool, option("--quiet", "no progress", "Advanced: run", "-q")] = False


# One word with a folder or an ending.
_LIKE_A_FILE = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{0,5}")


def read_lines(source: str, empty: bool = False) -> list[str]:
    """Read texts, one per line, from a file or from standard input (`-`).

    Empty lines are kept; a single one is a text only if texts may be `empty`.
    """
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InputError(f"cannot read '{source}': {reason_of(error)}.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"'{source}' is not UTF-8 text (line {line}).") from error
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines == [""] and not (empty and text):
        raise InputError(f"'{source}' is empty; give one text per line.")
    return lines


def read_texts(source: str, empty: bool = False) -> list[str] | list[Record]:
    """Read texts, one per line, or the records of a FASTA file."""
    from maskov.fasta import is_fasta, parse

    lines = read_lines(source, empty)
    return parse(lines, source) if is_fasta(source, lines) else lines


def read_frozen(rule: str | None) -> str | list[str] | None:
    """Return a rule of frozen tokens, or the masks of a file of this name."""
    if rule is None:
        return None
    try:
        named = Path(rule).is_file()
    except OSError:  # too long for a name
        named = False
    return read_lines(rule) if named else rule


def texts_or_files(sources: Sequence[str], empty: bool = False) -> list[str] | list[Record]:
    """Return texts given on the command line, and those of the files that are named there."""
    found: list[Any] = []
    for source in sources:
        found += read_texts(source, empty) if names_a_file(source) else [source]
    if len({isinstance(one, str) for one in found}) > 1:
        raise InputError("give texts or FASTA, not both.")
    return found


def names_a_file(source: str) -> bool:
    """Whether a word is a file, or looks like one that is not there."""
    with suppress(OSError, ValueError):  # too long for a name, or a null character
        if source == "-" or Path(source).exists():
            return True
    return _LIKE_A_FILE.fullmatch(source) is not None


def reason_of(error: Exception) -> str:
    """Return the system's reason for an error, in lower case."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def say(text: str) -> None:
    """Print to standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def print_json(lines: Iterable[str]) -> None:
    """Print JSON lines."""
    for line in lines:
        sys.stdout.write(json_printable(line) + "\n")


def print_table(table: Table) -> None:
    """Print a table; a pipe has no width, so its rows are neither cut nor folded."""
    folded = sys.stdout.isatty()
    console = PrintableConsole() if folded else PrintableConsole(width=10_000, soft_wrap=True)
    console.print(table, markup=False, highlight=False)


def as_lines(value: Any) -> str:
    """Return a value, or each value of a list on its own line, as text."""
    values = value if isinstance(value, list) else [value]
    return "\n".join(f"{each:.6g}" if isinstance(each, float) else str(each) for each in values)


def print_samples(samples: Sequence[Sample]) -> None:
    """Print a table of samples, texts as people write them."""
    from maskov.ui.detokenise import detokenised  # which imports torch

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("chain", "E_raw", "E_norm"):
        table.add_column(name, justify="right", style="cyan" if name != "chain" else "dim")
    mutated = any(sample.mutations is not None for sample in samples)
    for name in ("name", "mutations") if mutated else ("text",):
        table.add_column(name, overflow="fold")
    for sample in samples:
        shown = (
            (sample.name, " ".join(sample.mutations or ()))
            if mutated
            else (detokenised(sample.text, sample.tokens),)
        )
        table.add_row(
            str(sample.chain), f"{sample.energy_raw:.2f}", f"{sample.energy_norm:.2f}", *shown
        )
    print_table(table)


def say_summary(run: Run, said: str) -> None:
    """Print the rates, the verdict and the signature, without the note `said` before."""
    summary = run.summary()
    say(
        f"accepted {summary.acceptance_rate:.3f}  novel {summary.novel_rate:.3f}  "
        f"passes/step {summary.passes_per_step:.2f}  "
        f"leaves its target invariant: {'yes' if summary.leaves_invariant else 'no'}"
        if summary.acceptance_rate is not None
        else "no epoch after burn-in is complete yet"
    )
    for note in summary.notes:
        if note != said:
            say(f"note: {note}")
    if summary.acceptance_rate is not None:
        for sentence in run.diagnose().verdict.lines():
            say(sentence)
    say(run.signature)
