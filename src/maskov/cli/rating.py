"""The commands `rate new`, `rate rater`, `rate serve` and `rate report`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from maskov.cli.help import Command, CommandGroup
from maskov.cli.output import print_json, print_table, say
from maskov.cli.signals import interruptible
from maskov.errors import InputError
from maskov.ui.escaping import printable

if TYPE_CHECKING:
    from maskov.ui.ratings import Mean, Ratings

rate = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Have people rate texts blindly: coherence and fluency, 1 to 4.",
)
_Study = Annotated[Path, typer.Argument(metavar="STUDY", help="study folder")]


class _Lists(Command):
    """A command whose options --runs and --raters take several words each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite `--runs A B` as `--runs A --runs B`, which the parser understands."""
        rewritten: list[str] = []
        option = None
        for word in args:
            if word.startswith("-"):
                option = word if word in ("--runs", "--raters") else None
                if option is None:
                    rewritten.append(word)
            else:
                rewritten += [option, word] if option else [word]
        return super().parse_args(ctx, rewritten)


@rate.command(cls=_Lists)
@interruptible
def new(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="folder to create")],
    runs: Annotated[
        list[Path],
        typer.Option(
            metavar="A B ...",
            help="run folders, or .txt or .jsonl files of texts; one condition each",
        ),
    ],
    per_run: Annotated[int, typer.Option(help="texts from each run")] = 120,
    seed: Annotated[int, typer.Option(help="random seed of the selection and of the orders")] = 0,
    raters: Annotated[
        list[str] | None, typer.Option(metavar="NAME ...", help="raters to add")
    ] = None,
) -> None:
    """Make a blind study of texts from several runs."""
    from maskov.ui.ratings import make
    from maskov.ui.ratings.store import check_name

    for name in raters or []:
        check_name(name)  # before anything is written
    created = make(study, runs, per_run, seed)
    say(f"{len(created.items)} texts, {per_run} of each of {len(runs)} runs, in '{study}'")
    with created.store() as store:
        for name in raters or []:
            print(_link(store.add_rater(name)[0]), printable(name), sep="  ")
    if not raters:
        say(f"give each rater a link: maskov rate rater {study} NAME")
    say(f"then: maskov rate serve {study}")


@rate.command(cls=Command)
@interruptible
def rater(
    study: _Study,
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of the rater")],
) -> None:
    """Add a rater and print their link; for an existing rater, print it again."""
    from maskov.ui.ratings import Study

    with Study.open(study).store() as store:
        token, is_new = store.add_rater(name)
    if not is_new:
        say(f"note: '{name}' is already a rater; this is their link")
    print(_link(token))


@rate.command(cls=Command)
@interruptible
def serve(
    study: _Study,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 for any free port")] = 8765,
) -> None:
    """Serve the rating page to everyone with a link."""
    from maskov.ui.ratings import Study

    try:
        from maskov.ui.ratings.server import create_app
        from maskov.ui.web.serving import listen
        from maskov.ui.web.serving import serve as serve_app
    except ImportError as error:
        raise InputError("the rating page needs FastAPI: pip install '.[serve]'.") from error
    opened = Study.open(study)
    with opened.store() as store:
        links = {name: _link(token) for name, token in store.raters().items()}
    socket, address, loopback = listen(host, port)
    if not loopback:
        say(
            f"warning: '{host}' can be reached from other machines, without encryption: whoever "
            "sees a link can rate in its owner's name. Prefer a tunnel or a proxy with TLS."
        )
    if not links:
        say(f"nobody can rate yet: maskov rate rater {study} NAME")
    for name, link in links.items():
        print(f"{address}{link}", printable(name), sep="  ", flush=True)
    say(f"listening on {address}, Ctrl-C to stop; every answer is on disk once the page says so")
    serve_app(create_app(opened, loopback=loopback), socket)


@rate.command(cls=Command)
@interruptible
def report(
    study: _Study,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write every rating to this CSV file")
    ] = None,
) -> None:
    """Report the means of each condition with 95 % intervals, and the raters' agreement."""
    from maskov.ui.ratings import load

    ratings = load(study)
    if csv is not None:
        ratings.write_csv(csv)
    if json:
        print_json([json_module.dumps(ratings.to_dict(), ensure_ascii=False)])
    else:
        _print_table(ratings)


def _link(token: str) -> str:
    return f"/r/{token}/"


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
    print(printable(f"ratings of each rater: {counts or 'no raters yet'}"))
    say("intervals: 95 %, bootstrap over items, for the same raters")
    say(ratings.signature)


def _shown(mean: Mean) -> str:
    interval = "" if mean.low is None else f" [{mean.low:.2f}, {mean.high:.2f}]"
    return _number(mean.value) + interval


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
