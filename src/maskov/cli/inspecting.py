"""The commands that measure: `score`, `diagnose`, `verify`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from maskov.cli.output import as_lines, print_json, print_table, say, texts_or_files
from maskov.options.option import SMOOTHING
from maskov.options.scoring import ScoringOptions
from maskov.shipped import default_model
from maskov.ui.escaping import PrintableConsole, printable

if TYPE_CHECKING:
    from maskov.models import MaskedModel
    from maskov.scoring import Score

# Lines with unknown tokens that are pointed out one by one.
_POINTED_OUT = 5


def score(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT|FILE|-...",
            help="texts, or files of texts: one per line, or FASTA (- for standard input)",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="built-in name, folder or hub name")
    ] = default_model(),
    energy: Annotated[
        str,
        typer.Option("--energy", "-e", help="raw, norm, raw(groups=4), autoregressive, or a sum"),
    ] = "raw",
    causal_model: Annotated[
        str | None,
        typer.Option("--causal-model", help="causal LM for 'autoregressive' (default: --model)"),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="folder, hub name or vocab.txt (default: the model's)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
    prefix: Annotated[
        str, typer.Option("--prefix", help="text that the model reads before every text")
    ] = "",
    remove_smoothing: Annotated[float, typer.Option("--remove-smoothing", help=SMOOTHING)] = 0.0,
    token_budget: Annotated[
        int | None, typer.Option(min=1, help="tokens per model call (default: automatic)")
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="show the term of each word (--json always has them)")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output")] = False,
) -> None:
    """Score texts: E_raw and E_norm of each text, or another energy, and the term of each token."""
    lines = texts_or_files(source)
    options = ScoringOptions(
        model, energy, causal_model, tokenizer, device, trust_remote_code, prefix,
        remove_smoothing, token_budget,
    )  # fmt: skip
    if energy == "autoregressive":  # no masked model scores
        _print_scores(options.scores(lines), energy, json, words)
        return
    masked = options.load_model()
    scores = options.scores(lines, masked)
    _print_scores(scores, energy, json, words)
    _point_out_unknown(masked, scores)


def diagnose(
    run: Annotated[Path, typer.Argument(help="run folder")],
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Check the convergence of a run: R-hat, effective sample sizes, rates, costs."""
    from maskov.runs import Run
    from maskov.ui.report.formats import json_safe

    opened = Run.open(run)
    summary, diagnosis = opened.summary().to_dict(), opened.diagnose()
    if json:
        # Missing numbers are null: JSON has neither NaN nor infinity.
        values = json_safe({"diagnosis": diagnosis.to_dict(), **summary})
        print_json([json_module.dumps(values, ensure_ascii=False, allow_nan=False)])
        return
    # Sentences are not folded, so that grep finds them.
    print(printable("\n".join(diagnosis.verdict.lines())))
    for one in diagnosis.tables():
        table = Table(box=None, pad_edge=False, header_style="dim")
        for number, column in enumerate(one.head):
            table.add_column(column, justify="right" if number else "left")
        for row in one.rows:
            table.add_row(*row)
        print()
        print_table(table)
    for note in diagnosis.notes:
        print(printable(f"note: {note}"))
    print()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), as_lines(value))
    PrintableConsole().print(table, markup=False, highlight=False)


def verify(
    json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output")] = False,
) -> None:
    """Prove the kernels on the paper's counter-example, by their exact transition matrices."""
    from maskov.exact import verify as verify_kernels

    findings = verify_kernels()
    if json:
        print_json(finding.to_json() for finding in findings)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("kernel", "target", "claims invariance", "max |πP − π|", "stationary law"):
        table.add_column(column)
    for finding in findings:
        table.add_row(
            finding.kernel,
            finding.target,
            "yes" if finding.claims_invariance else "no",
            f"{finding.invariance_error:.1e}",
            " ".join(f"{state}:{p:.4f}" for state, p in finding.stationary.items()),
        )
    PrintableConsole().print(table, markup=False, highlight=False)


def _point_out_unknown(model: MaskedModel, scores: list[Score]) -> None:
    """Say which texts hold tokens that the model does not know, and why that may be."""
    from maskov.fasta import has_letters

    unknown = [(number, one) for number, one in enumerate(scores, 1) if one.unknown]
    for number, one in unknown[:_POINTED_OUT]:
        count, total = one.unknown, len(one.tokens)
        be = "is" if count == 1 else "are"
        advice = "; separate residues by spaces?" if has_letters(model) else ""
        say(f"note: line {number}: {count} of {total} tokens {be} unknown{advice}")
    if len(unknown) > _POINTED_OUT:
        say(f"note: {len(unknown) - _POINTED_OUT:,} more lines have unknown tokens")


def _print_scores(scores: list[Score], energy: str, json: bool, words: bool) -> None:
    if json:
        print_json(score.to_json() for score in scores)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    energies = list(scores[0].energies)
    for name in energies:
        table.add_column(_shown(name), justify="right", style="cyan")
    named = any(score.name is not None for score in scores)
    table.add_column("name" if named else "text", overflow="fold")
    if words:
        table.add_column(f"words, {_shown(energy)}", overflow="fold")
    for score in scores:
        by_word = zip(score.words, score.word_terms, strict=True)
        shown = ["  ".join(f"{word} {term:.2f}" for word, term in by_word)] if words else []
        values = [f"{score.energies[name]:.4f}" for name in energies]
        table.add_row(*values, score.name if named else score.text, *shown)
    print_table(table)


def _shown(energy: str) -> str:
    """Return the name of an energy as tables of samples have it."""
    return f"E_{energy}" if energy in ("raw", "norm") else energy
