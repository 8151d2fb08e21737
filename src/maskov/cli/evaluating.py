"""The commands that judge texts: `score`, `evaluate`, `evidence`, `rate export`, `rate import`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import maskov
from maskov import api
from maskov.cli.commands import (
    HELP,
    Command,
    CommandGroup,
    Json,
    OneJson,
    as_lines,
    command_of,
    or_dash,
    print_json,
    print_object,
    print_rows,
    say,
)
from maskov.errors import InputError, refuse, required
from maskov.options import read_lines
from maskov.shipped import default_judge
from maskov.ui.escaping import printable

if TYPE_CHECKING:
    from maskov.ratings import Mean, Ratings

# Lines with unknown tokens that are pointed out one by one.
_POINTED_OUT = 5
_ERROR = "_standard_error"
_INTERVAL = "_interval"


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
    if json:
        print_json(score.to_json() for score in scores)
    else:
        _print_scores(scores, given.get("energy", "raw"), words)
    if masked is not None:
        _point_out_unknown(masked, scores)


def _print_scores(scores: list[maskov.Score], energy: str, words: bool) -> None:
    from maskov.scoring import likelihood

    shown = {name: f"E_{name}" for name in ("raw", "norm")}  # as tables of samples have them
    energies = list(scores[0].energies)
    text = "text" if all(score.name is None for score in scores) else "name"
    texts = [text, *([f"words, {shown.get(energy, energy)}"] if words else [])]
    rows = []
    for score in scores:
        terms = "  ".join(
            f"{word} {term:.2f}" for word, term in zip(score.words, score.word_terms, strict=True)
        )
        rows.append([
            *(f"{score.energies[name]:.4f}" for name in energies), score.name or score.text,
            *([terms] if words else []),
        ])  # fmt: skip
    print_rows([*(shown.get(name, name) for name in energies), *texts], rows, texts)
    if together := likelihood(scores):
        say(", ".join(f"{value:.3f} {name.replace('_', ' ')}" for name, value in together.items()))


def _point_out_unknown(model: maskov.MaskedModel, scores: list[maskov.Score]) -> None:
    """Say which texts hold tokens that the model does not know, and why that may be."""
    from maskov.fasta import letters_of

    unknown = [(number, one) for number, one in enumerate(scores, 1) if one.unknown]
    for number, one in unknown[:_POINTED_OUT]:
        be = "is" if one.unknown == 1 else "are"
        advice = "; separate residues by spaces?" if letters_of(model) else ""
        say(f"note: line {number}: {one.unknown} of {len(one.tokens)} tokens {be} unknown{advice}")
    if len(unknown) > _POINTED_OUT:
        say(f"note: {len(unknown) - _POINTED_OUT:,} more lines have unknown tokens")


def evaluate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FILE",
            help="run folder, or sentences: one per line (- for standard input), .jsonl or FASTA",
        ),
    ],
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            "-j",
            help="causal LM: name, folder or hub name (default: shipped; none for FASTA)",
        ),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(help="training text, one sentence per line or FASTA, .xz or .gz: find copies"),
    ] = None,
    references: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="reference translations, one per line, for BLEU and chrF",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    token_budget: Annotated[
        int | None, typer.Option(help="tokens per model call (default: automatic)")
    ] = None,
    json: OneJson = False,
) -> None:
    """Evaluate texts: perplexity, diversity, copies; translations against references."""
    from maskov.evaluation import compare, evaluate as evaluate_texts, evaluate_run
    from maskov.models import choose_device

    run = maskov.Run.open(source) if references is None and Path(source).is_dir() else None
    texts, values = list[Any](), dict[str, Any]()
    if references is not None:
        refuse((
            training is not None and judge is None,
            "--training with --references needs a judge: give --judge.",
        ))  # fmt: skip
        texts, others = _read_pairs(source, references)
        values = asdict(compare(texts, others))
    elif run is None:
        texts = read_sentences(source)
    if references is None or judge is not None:
        letters = (
            isinstance(texts[0], maskov.Record)
            if run is None
            else run.manifest.inputs.names is not None
        )
        refuse((
            judge is None and letters,
            f"'{source}' holds sequences of letters, and the default judge reads English: give "
            "--judge, a causal LM of such sequences.",
        ))  # fmt: skip
        name = required(
            judge or default_judge(),
            "no judge is shipped with this maskov: give --judge, a causal LM.",
        )
        loaded = maskov.Autoregressive(name, choose_device(device), budget=token_budget)
        judged = asdict(
            evaluate_run(run, loaded, training) if run else evaluate_texts(texts, loaded, training)
        )
        values |= judged | {"notes": values.get("notes", []) + judged["notes"]}
    if json:
        print_object(values)
    else:
        _print_values(values)


def _read_pairs(source: str, references: str) -> tuple[list[str], list[str]]:
    """Read translations and references; empty lines count."""
    refuse(
        (
            source == references == "-",
            "translations and references cannot both come from standard input.",
        ),
        (
            Path(source).is_dir(),
            f"'{source}' is a folder; --references needs translations, one per line.",
        ),
    )
    others, rows = _read_rows(references), _read_rows(source)
    chains = {str(row["chain"]) for row in rows if "chain" in row}
    fasta = "'{}' is FASTA, and --references compares translations: drop --references."
    refuse(
        ("record" in others[0], fasta.format(references)),
        ("record" in rows[0], fasta.format(source)),
        (
            len(rows) > len(others) and len(chains) > 1,
            f"'{source}' holds {len(rows)} translations from {len(chains)} chains for "
            f"{len(others)} references; give one translation for each source.",
        ),
    )
    return [row["text"] for row in rows], [row["text"] for row in others]


def read_sentences(source: str) -> list[str] | list[maskov.Record]:
    """Read plain lines, JSON lines with a `text`, or the records of FASTA."""
    return [row.get("record", row["text"]) for row in _read_rows(source)]


def _read_rows(source: str) -> list[dict[str, Any]]:
    """Read lines as dictionaries with a `text`; JSON lines have more, and FASTA the `record`."""
    from maskov.fasta import is_fasta, parse

    lines = read_lines(source)
    # A .jsonl file, or `sample --json` piped.
    if source.endswith(".jsonl") or (source == "-" and lines[0].lstrip().startswith("{")):
        return [_parse_row(line, number, source) for number, line in enumerate(lines, 1)]
    if is_fasta(source, lines):
        return [{"text": one.sequence, "record": one} for one in parse(lines, source)]
    return [{"text": line} for line in lines]


def _parse_row(line: str, number: int, source: str) -> dict[str, Any]:
    try:
        row = json_module.loads(line)
        if isinstance(row["text"], str):
            return dict(row)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InputError(f"line {number} of '{source}' is not a JSON object with a `text`.")


def _print_values(values: dict[str, Any]) -> None:
    """Print each number with its uncertainty; skip what was not computed."""
    rows = []
    for name, value in values.items():
        if name.endswith((_ERROR, _INTERVAL)) or value is None or value == []:
            continue
        error, interval = values.get(name + _ERROR), values.get(name + _INTERVAL)
        uncertainty = "" if error is None else f" ± {error:.2g}"
        # Marked, since standard errors in the same table are about half as wide.
        uncertainty += "" if interval is None else f" ± {interval:.2g} (95 %)"
        rows.append((name.replace("_", " "), as_lines(value) + uncertainty))
    print_rows((), rows)


@command_of(api.evidence, model=api.DEFAULT_MODEL)
def evidence(
    given: dict[str, Any],
    csv: Annotated[bool, typer.Option("--csv", help="a line for each target and length")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="picture to write: nats per token along each path")
    ] = None,
    json: OneJson = False,
) -> None:
    """Measure log Z of energies, and the likelihood of texts under them."""
    from maskov.likelihood import draw, evidence_as_asked

    found = evidence_as_asked(**given, told=lambda text: say(f"measuring {text}"))
    if figure is not None:
        draw(found, figure)
    if json:
        print_object(found)
    elif csv:
        print(found.to_csv(), end="")
    else:
        table = found.table()
        print_rows(table.head, table.rows, words=("energy", "populations"))
        for note in found.notes():
            say(note)


rate = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    context_settings=HELP,
    help="Have people rate texts blindly: coherence and fluency, 1 to 4.",
)


@rate.command(cls=Command)
def export(
    texts: Annotated[
        list[Path],
        typer.Argument(
            metavar="TEXTS...",
            help="run folders, or .txt, .jsonl or FASTA files; one condition each",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="folder to create, for raters")],
    format: Annotated[str, typer.Option(help="label-studio or csv")] = "label-studio",
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="which text is whose, not for raters (default: OUT.key.json)"
        ),
    ] = None,
    per_run: Annotated[int, typer.Option(help="texts of each condition")] = 120,
    seed: Annotated[int, typer.Option(help="random seed of the selection and of the orders")] = 0,
    raters: Annotated[int, typer.Option(help="files of csv, each in a different order")] = 1,
) -> None:
    """Write a blind study of texts: tasks for Label Studio or CSV files, and its key."""
    from maskov.ratings import export as write

    conditions: dict[str, list[str]] = {}
    for source in texts:
        path = source.resolve()
        name = path.name if path.is_dir() else path.stem
        refuse(
            (name in conditions, f"two conditions are called '{name}'; their names must differ.")
        )
        read = _read_rows(str(path / "samples.jsonl" if path.is_dir() else path))
        conditions[name] = [row["text"] for row in read]
    for path in write(out, conditions, format, key=key, per_run=per_run, seed=seed, raters=raters):
        print(printable(str(path)))
    say(f"{per_run * len(texts)} texts, {per_run} of each of {len(texts)} conditions")


@rate.command("import", cls=Command)
def import_answers(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSON export of Label Studio, or CSV files"),
    ],
    key: Annotated[Path, typer.Option(metavar="FILE", help="key of the study")],
    json: OneJson = False,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write every rating to this CSV file")
    ] = None,
) -> None:
    """Print the means of each condition with 95 % intervals, and the raters' agreement."""
    from maskov.ratings import load

    ratings = load(files, key)
    if csv is not None:
        ratings.write_csv(csv)
    if json:
        print_object({name: one for name, one in vars(ratings).items() if name != "rows"})
    else:
        _print_ratings(ratings)


def _print_ratings(ratings: Ratings) -> None:
    rows = [
        (
            one.name, _shown(one.coherence), _shown(one.fluency), f"{one.rated}/{one.items}",
            str(one.ratings), str(one.raters),
        )
        for one in ratings.conditions
    ]  # fmt: skip
    print_rows(
        ("condition", "coherence", "fluency", "rated", "ratings", "raters"),
        rows,
        words=("condition",),
    )
    print(
        f"agreement (Krippendorff's alpha, ordinal): coherence {or_dash(ratings.coherence_alpha)}, "
        f"fluency {or_dash(ratings.fluency_alpha)}"
    )
    counts = ", ".join(f"{name} {count}" for name, count in ratings.raters.items())
    print(printable(f"ratings of each rater: {counts or 'none yet'}"))
    say("intervals: 95 %, bootstrap over items, for the same raters")
    say(ratings.signature)


def _shown(mean: Mean) -> str:
    return or_dash(mean.value) + ("" if mean.low is None else f" [{mean.low:.2f}, {mean.high:.2f}]")
