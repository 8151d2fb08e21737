"""The command `bench`, which measures speed."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from maskov.cli.output import print_json, say
from maskov.shipped import default_model

# The quantities in the table, the most important first; the JSON contains all.
_SHOWN = {
    "novel moves/s": "novel_per_second",
    "novel moves/step": "novel_per_step",
    "novel moves/pass": "novel_per_pass",
    "steps/s": "steps_per_second",
    "passes/step": "passes_per_step",
    "passes/s": "passes_per_second",
    "tokens/s": "tokens_per_second",
    "ESS/s": "effective_per_second",
    "ESS/pass": "effective_per_pass",
    "peak memory, MiB": "peak_memory_mib",
    "peak device memory, MiB": "peak_device_memory_mib",
    "TFLOP/s": "teraflops",
    "share of ceiling": "share_of_ceiling",
    "seconds measured": "seconds",
    "novel moves seen": "novel_seen",
}
_SCORED = ("sentences_per_second", "tokens_per_second", "batch", "peak_memory_mib", "seconds")


def bench(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="name, folder, bert-base-shaped, or bert-LxW-shaped (such as bert-4x256-shaped)",
        ),
    ] = default_model(),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, tf32 or bfloat16")] = "float32",
    energy: Annotated[str, typer.Option("--energy", "-e", help="raw or norm")] = "raw",
    chains: Annotated[int, typer.Option("--chains", "-c", help="chains of maskov's rows")] = 64,
    length: Annotated[
        str, typer.Option("--length", "-l", help="tokens per chain: 20, or a range 15:45")
    ] = "20",
    epochs: Annotated[int, typer.Option("--epochs", "-n", help="epochs of maskov's rows")] = 12,
    burn_in: Annotated[int, typer.Option(help="first epochs, which are not measured")] = 4,
    rows: Annotated[
        str,
        typer.Option(
            help="a: Algorithm 1, b: batched copies, c: maskov (or the name of a variant), score, "
            "start: seconds until --help answers"
        ),
    ] = "a,b,c,score,start",
    seconds: Annotated[
        float | None,
        typer.Option(
            help="seconds for each row, with fewer chains if need be (default: 20 for a, b and "
            "score; maskov's rows end after --epochs)"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="random seed")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="JSON file to write")] = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
) -> None:
    """Measure speed against the paper's algorithm in plain code and another scorer."""
    from maskov.benchmarks import Options
    from maskov.benchmarks import run as run_benchmark
    from maskov.benchmarks.files import check_writable, write_json
    from maskov.options.running import parse_length

    options = Options(
        model=model,
        device=device,
        precision=precision,
        energy=energy,
        chains=chains,
        length=parse_length(length),
        epochs=epochs,
        burn_in=burn_in,
        rows=tuple(row.strip() for row in rows.split(",") if row.strip()),
        seconds=Options.seconds if seconds is None else seconds,
        seed=seed,
        limited=seconds is not None,
    )
    if out is not None:
        check_writable(out)
    results = run_benchmark(options, None if quiet else say)
    if out is not None:
        write_json(out, results)
    if json:
        print_json([json_module.dumps(results, ensure_ascii=False)])
    else:
        _print_tables(results)
    if not quiet:
        _say_notes(results)


def _print_tables(results: dict[str, Any]) -> None:
    """Print one column per sampler: there are more quantities than samplers."""
    # Do not wrap lines when the output is a pipe.
    console = Console() if sys.stdout.isatty() else Console(width=10_000, soft_wrap=True)
    rows = results["rows"]
    if rows:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("")
        for row in rows:
            table.add_column(row["name"], justify="right", style="cyan")
        lines = {label: [row[key] for row in rows] for label, key in _SHOWN.items()}
        for letter, name in (("a", "algorithm 1"), ("b", "batched copies")):
            for what, key in (("moves/s", "novel_per_second"), ("moves/pass", "novel_per_pass")):
                values = [row["ratios"].get(letter, {}).get(key) for row in rows]
                lines[f"novel {what}, × {name}"] = values
        for label, values in lines.items():
            if any(value is not None for value in values):
                table.add_row(label, *map(_number, values))
        console.print(table, markup=False, highlight=False)
    if results["score"] is not None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("scorer", *_SCORED):
            table.add_column(column.replace("_per_second", "/s").replace("_", " "))
        for row in results["score"]["rows"]:
            values = [_number(row.get(key)) for key in _SCORED]
            table.add_row(row["name"], *([row["missing"]] if "missing" in row else values))
        console.print("", table, markup=False, highlight=False)
    if results["seconds_to_answer"] is not None:
        shown = (f"{words} {s:.2f} s" for words, s in results["seconds_to_answer"].items())
        console.print("", f"the command answers: {', '.join(shown)}", markup=False, highlight=False)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _say_notes(results: dict[str, Any]) -> None:
    if results["model"]["caution"]:
        say(f"note: {results['model']['caution']}")
    for row in results["rows"]:
        for note in row["notes"]:
            say(f"note: {row['name']}: {note}")
    score = results["score"]
    if score is not None and score["agree"] is not None:
        verdict = "agree" if score["agree"] else "DO NOT AGREE"
        say(f"the scorers {verdict}: largest difference {score['largest_difference']:.2g}")
    for signature in dict.fromkeys(row["signature"] for row in results["rows"] if row["signature"]):
        say(signature)
