"""The commands `evaluate` and `evidence`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from maskov import api
from maskov.cli.generated import command_of
from maskov.cli.output import as_lines, print_json, print_table, say
from maskov.errors import InputError
from maskov.options import read_lines
from maskov.shipped import default_judge

if TYPE_CHECKING:
    from maskov.energies import Autoregressive
    from maskov.fasta import Record
    from maskov.likelihood import Evidence

_ERROR = "_standard_error"
_INTERVAL = "_interval"


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
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Evaluate texts: perplexity, diversity, copies; translations against references."""
    from maskov.evaluation import compare
    from maskov.evaluation import evaluate as evaluate_texts

    if references is None:
        values = _evaluate(source, judge, training, device, token_budget)
    else:
        if training is not None and judge is None:
            raise InputError("--training with --references needs a judge: give --judge.")
        texts, others = _read_pairs(source, references)
        values = compare(texts, others).to_dict()
        if judge is not None:
            loaded = _load_judge(judge, device, token_budget)
            judged = evaluate_texts(texts, loaded, training).to_dict()
            values |= judged | {"notes": values["notes"] + judged["notes"]}
    if json:
        print_json([json_module.dumps(values, ensure_ascii=False)])
    else:
        _print_table(values)


def _evaluate(
    source: str, judge: str | None, training: Path | None, device: str, budget: int | None
) -> dict[str, Any]:
    """Evaluate the samples of a run, or the texts of a file."""
    from maskov.evaluation import evaluate, evaluate_run
    from maskov.fasta import Record
    from maskov.runs import Run

    run = Run.open(source) if Path(source).is_dir() else None
    texts = read_sentences(source) if run is None else []
    if run is None:
        sequences = isinstance(texts[0], Record)
    else:
        sequences = run.manifest.inputs.names is not None
    if sequences and judge is None:
        raise InputError(
            f"'{source}' holds sequences of letters, and the default judge reads English: give "
            "--judge, a causal LM of such sequences."
        )
    loaded = _load_judge(judge or default_judge(), device, budget)
    if run is not None:
        return evaluate_run(run, loaded, training).to_dict()
    return evaluate(texts, loaded, training).to_dict()


def _load_judge(name: str | None, device: str, budget: int | None) -> Autoregressive:
    from maskov.energies import Autoregressive
    from maskov.models import choose_device

    if name is None:
        raise InputError("no judge is shipped with this maskov: give --judge, a causal LM.")
    return Autoregressive(name, choose_device(device), budget=budget)


def _read_pairs(source: str, references: str) -> tuple[list[str], list[str]]:
    """Read translations and references; empty lines count."""
    if source == references == "-":
        raise InputError("translations and references cannot both come from standard input.")
    if Path(source).is_dir():
        raise InputError(f"'{source}' is a folder; --references needs translations, one per line.")
    others = [row["text"] for row in _read_translations(references)]
    rows = _read_translations(source, empty=True)
    chains = {str(row["chain"]) for row in rows if "chain" in row}
    if len(rows) > len(others) and len(chains) > 1:
        raise InputError(
            f"'{source}' holds {len(rows)} translations from {len(chains)} chains for "
            f"{len(others)} references; give one translation for each source."
        )
    return [row["text"] for row in rows], others


def _read_translations(source: str, empty: bool = False) -> list[dict[str, Any]]:
    """Read plain lines as `text`, or JSON lines; FASTA is refused."""
    from maskov.fasta import is_fasta

    lines = read_lines(source, empty)
    if _is_json(source, lines):
        return _parse_rows(lines, source)
    if is_fasta(source, lines):
        raise InputError(
            f"'{source}' is FASTA, and --references compares translations: drop --references."
        )
    return [{"text": line} for line in lines]


def read_sentences(source: str) -> list[str] | list[Record]:
    """Read plain lines, JSON lines with a `text`, or the records of FASTA."""
    from maskov.fasta import is_fasta, parse

    lines = read_lines(source)
    if _is_json(source, lines):
        return [row["text"] for row in _parse_rows(lines, source)]
    return parse(lines, source) if is_fasta(source, lines) else lines


def _is_json(source: str, lines: list[str]) -> bool:
    """Whether texts are JSON lines: a .jsonl file, or `sample --json` piped."""
    return source.endswith(".jsonl") or (source == "-" and lines[0].lstrip().startswith("{"))


def _parse_rows(lines: list[str], source: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json_module.loads(line)
            text = row["text"]
        except (ValueError, TypeError, KeyError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise InputError(f"line {number} of '{source}' is not a JSON object with a `text`.")
        rows.append(row)
    return rows


def _print_table(values: dict[str, Any]) -> None:
    """Print each number with its uncertainty; skip what was not computed."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in values.items():
        if name.endswith((_ERROR, _INTERVAL)) or value is None or value == []:
            continue
        error, interval = values.get(name + _ERROR), values.get(name + _INTERVAL)
        uncertainty = "" if error is None else f" ± {error:.2g}"
        # Marked, since standard errors in the same table are about half as wide.
        uncertainty += "" if interval is None else f" ± {interval:.2g} (95 %)"
        table.add_row(name.replace("_", " "), as_lines(value) + uncertainty)
    print_table(table)


@command_of(api.evidence, model=api.DEFAULT_MODEL)
def evidence(
    given: dict[str, Any],
    csv: Annotated[bool, typer.Option("--csv", help="a line for each target and length")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="picture to write: nats per token along each path")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure log Z of energies, and the likelihood of texts under them."""
    from maskov.likelihood import draw, evidence_as_asked
    from maskov.ui.report.formats import json_safe

    found = evidence_as_asked(**given, told=lambda text: say(f"measuring {text}"))
    if figure is not None:
        draw(found, figure)
    if json:
        values = json_safe(json_module.loads(found.to_json()))
        print_json([json_module.dumps(values, ensure_ascii=False, allow_nan=False)])
    elif csv:
        print(found.to_csv(), end="")
    else:
        _print_evidence(found)


def _print_evidence(found: Evidence) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (
        "energy",
        "T",
        "length",
        "log Z",
        "nats per token",
        "bits per byte",
        "populations",
    ):
        table.add_column(name, justify="left" if name in ("energy", "populations") else "right")
    for target in found.targets:
        texts = found.texts > 0
        for number, one in enumerate(target.lengths):
            last = number == len(target.lengths) - 1
            bound = "" if target.exact else "≥ "
            error = "" if target.exact else f" ± {target.error:.3f}"
            table.add_row(
                target.energy if number == 0 else "",
                f"{target.temperature:g}" if number == 0 else "",
                str(one.length),
                "0, exactly" if target.exact else f"{one.log_z:.2f} ± {one.error:.2f}",
                f"{bound}{target.nats_per_token:.3f}{error}" if last and texts else "",
                f"{bound}{target.bits_per_byte:.3f}" if last and texts else "",
                "" if target.exact else "agree" if one.agree else "do not agree",
            )
    print_table(table)
    if found.texts:
        say(f"uniform over all tokens: {found.uniform:.3f} nats per token")
    if found.causal is not None:
        say(f"the causal model, which is not told the length: {found.causal:.3f} nats per token")
    for target in found.targets:
        for one in target.lengths:
            for problem in one.problems:
                say(f"note: {target.energy}, {one.length} tokens: {problem}")
        if target.best is not None and found.texts:
            share, nats = target.best
            say(
                f"best product on the way from ordered to {target.energy}: share {share:.2f}, "
                f"{nats:.3f} nats per token"
            )
