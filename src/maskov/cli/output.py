"""Printing results."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from maskov.ui.escaping import PrintableConsole, json_printable, printable

if TYPE_CHECKING:
    from maskov.runs import Run, Sample


def say(text: str) -> None:
    """Print to standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def print_json(lines: Iterable[str]) -> None:
    """Print JSON lines."""
    for line in lines:
        sys.stdout.write(json_printable(line) + "\n")


def print_object(values: Any) -> None:
    """Print one JSON object; missing numbers are null, since JSON has neither NaN nor infinity."""
    from maskov.ui.report.formats import json_safe

    print_json([json.dumps(json_safe(values), ensure_ascii=False, allow_nan=False)])


def print_table(table: Table) -> None:
    """Print a table; a pipe has no width, so its rows are neither cut nor folded."""
    folded = sys.stdout.isatty()
    console = PrintableConsole() if folded else PrintableConsole(width=10_000, soft_wrap=True)
    console.print(table, markup=False, highlight=False)


def print_rows(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], words: Collection[str] = ("text",)
) -> None:
    """Print rows under the names of their columns; those that are not `words` are numbers.

    Without a head, the columns are names and values.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=bool(head))
    for name in head:
        if name in words:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", style="cyan")
    for row in rows:
        table.add_row(*row)
    print_table(table)


def as_lines(value: Any) -> str:
    """Return a value, or each value of a list on its own line, as text."""
    values = value if isinstance(value, list) else [value]
    return "\n".join(f"{each:.6g}" if isinstance(each, float) else str(each) for each in values)


def print_samples(samples: Sequence[Sample]) -> None:
    """Print a table of samples, texts as people write them."""
    from maskov.ui.detokenise import detokenised  # which imports torch

    mutated = any(sample.mutations is not None for sample in samples)
    words = ("name", "mutations") if mutated else ("text",)
    rows = []
    for one in samples:
        texts = (one.name, " ".join(one.mutations or ())) if mutated else (
            detokenised(one.text, one.tokens),
        )  # fmt: skip
        rows.append((str(one.chain), f"{one.energy_raw:.2f}", f"{one.energy_norm:.2f}", *texts))
    print_rows(("chain", "E_raw", "E_norm", *words), rows, words)


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
