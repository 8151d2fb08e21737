"""The commands that measure and list: `score`, `diagnose`, `verify`, `models`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from maskov import api
from maskov.cli.generated import Json, command_of
from maskov.cli.output import as_lines, print_json, print_table, say
from maskov.ui.escaping import PrintableConsole, printable

if TYPE_CHECKING:
    from maskov.models import MaskedModel
    from maskov.scoring import Score

# What a model is the default of, by its kind.
_DEFAULTS = {"masked": " (default)", "causal": " (default judge of evaluate)"}
# Lines with unknown tokens that are pointed out one by one.
_POINTED_OUT = 5


@command_of(api.score, model=api.DEFAULT_MODEL)
def score(
    given: dict[str, Any],
    words: Annotated[
        bool, typer.Option("--words", help="show the term of each word (--json always has them)")
    ] = False,
    json: Json = False,
) -> None:
    """Score texts: E_raw and E_norm of each text, or another energy, and the term of each token."""
    from maskov.scoring import score_as_asked

    scores, masked = score_as_asked(**given)
    _print_scores(scores, given.get("energy", "raw"), json, words)
    if masked is not None:
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


def verify(json: Json = False) -> None:
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


def models(
    json: Json = False,
) -> None:
    """List the models that need no download."""
    from maskov.shipped import listed

    if json:
        print_json(model.to_json() for model in listed())
        return
    # One block per model: the description does not fit into a line of a terminal.
    for model in listed():
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim", min_width=10)
        table.add_column(overflow="fold")
        default = _DEFAULTS[model.kind] if model.default else ""
        table.add_row("model", model.name + default)
        table.add_row("description", f"{model.kind}: {model.summary}")
        if model.pairs:
            table.add_row("translates", ", ".join(model.pairs))
        size = f", {model.bytes / 2**20:.1f} MiB" if model.bytes else ""
        table.add_row("size", f"{model.parameters:,} parameters{size}")
        table.add_row("trained on", model.training_data)
        table.add_row("licence", model.licence)
        if model.quality:
            measured = (f"{name} {value:g}" for name, value in model.quality.items())
            table.add_row("quality", "; ".join(measured))
        PrintableConsole().print(table, "", markup=False, highlight=False)
