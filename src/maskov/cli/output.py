"""What commands print: JSON, tables, and notes on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from maskov.ui.escaping import PrintableConsole, json_printable, printable

if TYPE_CHECKING:
    from maskov.filling import Filling
    from maskov.runs import Run, Sample
    from maskov.runs.result import Fill

# Fills of each template in a table, unless --top-k says otherwise.
SHOWN = 20


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


def print_rows(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], words: Collection[str] = ("text",)
) -> None:
    """Print rows under the names of their columns; those that are not `words` are numbers.

    Without a head, the columns are names and values. A pipe has no width, so there rows are neither
    cut nor folded.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=bool(head))
    for name in head:
        if name in words:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", style="cyan")
    for row in rows:
        table.add_row(*row)
    folded = sys.stdout.isatty()
    console = PrintableConsole() if folded else PrintableConsole(width=10_000, soft_wrap=True)
    console.print(table, markup=False, highlight=False)


def or_dash(value: float | None, form: str = ".2f") -> str:
    """Return a number as text, or a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:{form}}"


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


def print_fills(
    fills: Sequence[Sequence[Fill]],
    names: Sequence[str] | None = None,
    top_k: int | None = None,
    counted: bool = True,
) -> None:
    """Print the fills of each template, most probable first; those of chains were `counted`."""
    rows = []
    for place, found in enumerate(fills):
        label = str(place + 1) if names is None else names[place]
        for fill in found[: top_k or SHOWN]:
            shares = (
                or_dash(one, ".2e" if 0 < one < 0.001 else ".4f" if one else ".0f")
                for one in (fill.probability, fill.error)
            )
            count = [str(fill.count)] if counted else []
            rows.append((label, *shares, or_dash(fill.energy), *count, fill.text))
    counts = ("count",) if counted else ()
    head = ("template", "probability", "error", "energy", *counts, "text")
    alone = len(fills) < 2  # which needs no name
    print_rows(head[alone:], [row[alone:] for row in rows])


def say_filling(found: Filling, quiet: bool) -> None:
    """Say what is not listed, the lengths and the verdict; problems are said in any case."""
    for one in () if quiet else found.templates:
        lengths = [
            f"{n}: {p:.3f} ± {e:.3f}" for n, (p, e) in one.lengths.items() if p + e >= 0.0005
        ]
        if lengths:
            say(f"tokens in the blanks: {', '.join(lengths)}")
        say(
            f"{one.template}: {len(one.fills):,} fills found, which leave probability "
            f"{one.unlisted:.3f} to all others (passes of the model: {one.passes:,})"
        )
    for problem in found.problems:
        say(f"not good enough: {problem}")
    if quiet:
        return
    error = max(one.error for one in found.templates)
    if not error:
        say("good: the probabilities are exact")
    elif not found.problems:
        say(f"good: the probabilities are known to ± {error:.1%}")
    heat = "" if found.temperature == 1 else f"/{found.temperature:g}"
    say(f"p ∝ exp(−E{heat}), E = {found.energy}")
