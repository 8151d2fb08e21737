"""The command that judges texts: `evaluate`."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from maskov.cli.output import print_json, read_lines
from maskov.energies import Autoregressive
from maskov.errors import InputError
from maskov.evaluation import evaluate as evaluate_texts
from maskov.evaluation import evaluate_run
from maskov.models import choose_device
from maskov.models.registry import default_judge
from maskov.run import Run

_ERROR = "_standard_error"


def evaluate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FILE",
            help="run folder; sentences, one a line (- for standard input); or .jsonl with `text`",
        ),
    ],
    judge: Annotated[
        str | None,
        typer.Option("--judge", "-j", help="causal LM: shipped name, folder or hub name"),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(help="training text, one sentence a line, plain, .xz or .gz: find copies"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    token_budget: Annotated[
        int | None, typer.Option(help="tokens a model call; found by itself unless given")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Evaluate texts: perplexity under a judge, diversity, copies of the training text."""
    name = judge or default_judge()
    if name is None:
        raise InputError("no judge comes with this maskov: give --judge, a causal language model.")
    reader = Autoregressive(name, choose_device(device), budget=token_budget)
    if Path(source).is_dir():
        found = evaluate_run(Run.open(source), reader, training)
    else:
        found = evaluate_texts(_read_texts(source), reader, training)
    values = found.to_dict()
    if json:
        print_json([json_module.dumps(values, ensure_ascii=False)])
    else:
        _print_table(values)


def _read_texts(source: str) -> list[str]:
    """Read plain lines, or the `text` of JSON lines: a .jsonl file, or `sample --json` piped."""
    lines = read_lines(source)
    if not (source.endswith(".jsonl") or (source == "-" and lines[0].lstrip().startswith("{"))):
        return lines
    texts = []
    for number, line in enumerate(lines, 1):
        try:
            text = json_module.loads(line)["text"]
        except (ValueError, TypeError, KeyError):
            text = None
        if not isinstance(text, str):
            raise InputError(f"line {number} of '{source}' is no JSON object with a `text`.")
        texts.append(text)
    return texts


def _print_table(values: dict[str, Any]) -> None:
    """Print each number with its standard error beside it, and leave out what was not asked."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in values.items():
        if name.endswith(_ERROR) or value is None or value == []:
            continue
        error = values.get(name + _ERROR)
        lines = value if isinstance(value, list) else [value]
        shown = [f"{line:.6g}" if isinstance(line, float) else str(line) for line in lines]
        beside = "" if error is None else f" ± {error:.2g}"
        table.add_row(name.replace("_", " "), "\n".join(shown) + beside)
    # A pipe has no width of its own; signatures must not be folded for it.
    console = Console() if sys.stdout.isatty() else Console(width=10_000, soft_wrap=True)
    console.print(table, markup=False, highlight=False)
