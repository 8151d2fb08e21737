"""The commands `rate export` and `rate import`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from maskov.cli.evaluating import read_sentences
from maskov.cli.generated import Command, CommandGroup
from maskov.cli.output import print_json, print_table, say
from maskov.cli.signals import interruptible
from maskov.errors import InputError
from maskov.ui.escaping import printable

if TYPE_CHECKING:
    from maskov.ratings import Mean, Ratings

rate = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Have people rate texts blindly: coherence and fluency, 1 to 4.",
)


@rate.command(cls=Command)
@interruptible
def export(
    texts: Annotated[
        list[Path],
        typer.Argument(
            metavar="TEXTS...",
            help="run folders, or .txt or .jsonl files of texts; one condition each",
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
        if name in conditions:
            raise InputError(f"two conditions are called '{name}'; their names must differ.")
        read = read_sentences(str(path / "samples.jsonl" if path.is_dir() else path))
        conditions[name] = [one if isinstance(one, str) else one.sequence for one in read]
    for path in write(out, conditions, format, key=key, per_run=per_run, seed=seed, raters=raters):
        print(printable(str(path)))
    say(f"{per_run * len(texts)} texts, {per_run} of each of {len(texts)} conditions")


@rate.command("import", cls=Command)
@interruptible
def import_answers(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSON export of Label Studio, or CSV files"),
    ],
    key: Annotated[Path, typer.Option(metavar="FILE", help="key of the study")],
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
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
        print_json([json_module.dumps(ratings.to_dict(), ensure_ascii=False)])
    else:
        _print_table(ratings)


def _print_table(ratings: Ratings) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("condition", overflow="fold")
    for name in ("coherence", "fluency", "rated", "ratings", "raters"):
        table.add_column(name, justify="right")
    for condition in ratings.conditions:
        table.add_row(
            condition.name,
            _shown(condition.coherence),
            _shown(condition.fluency),
            f"{condition.rated}/{condition.items}",
            str(condition.ratings),
            str(condition.raters),
        )
    print_table(table)
    print(
        f"agreement (Krippendorff's alpha, ordinal): coherence {_number(ratings.coherence_alpha)}, "
        f"fluency {_number(ratings.fluency_alpha)}"
    )
    counts = ", ".join(f"{name} {count}" for name, count in ratings.raters.items())
    print(printable(f"ratings of each rater: {counts or 'none yet'}"))
    say("intervals: 95 %, bootstrap over items, for the same raters")
    say(ratings.signature)


def _shown(mean: Mean) -> str:
    interval = "" if mean.low is None else f" [{mean.low:.2f}, {mean.high:.2f}]"
    return _number(mean.value) + interval


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
