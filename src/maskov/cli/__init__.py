"""The command `maskov`."""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from maskov.cli.commands import HELP, INTERRUPTED, Command, CommandGroup, say
from maskov.cli.evaluating import evaluate, evidence, rate, score
from maskov.cli.runs import (
    diagnose,
    infill,
    models,
    report,
    resume,
    rewrite,
    sample,
    serve,
    translate,
    verify,
)
from maskov.errors import MaskovError, reason_of
from maskov.version import __version__

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
    help="Sample correctly and fast from any masked language model.",
)
for command in (
    sample, infill, rewrite, translate, score, evaluate, evidence, resume, diagnose, report, serve,
    verify, models,
):  # fmt: skip
    app.command(cls=Command)(command)
app.add_typer(rate, name="rate")


_MEMORY = (
    "not enough memory; lower --token-budget, --resident or --chains, or use shorter texts or a "
    "smaller model"
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"maskov {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="the version")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    """Options of every command; `main` accepts --debug in any place."""


def main(
    arguments: Sequence[str] | None = None, app: typer.Typer = app, name: str = "maskov"
) -> None:
    """Run the command `maskov`, or another; errors that the user can fix are one sentence.

    The exit code is then 2.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # also on other terminals: JSON is UTF-8
        try:
            app(args=[word for word in words if word != "--debug"], prog_name=name)
        finally:
            sys.stdout.flush()  # so that a full disk is reported below
    except MaskovError as error:
        if debug:
            raise
        say(f"{name}: {error}")
        sys.exit(2)
    except BrokenPipeError:
        # The reader has closed the pipe, as `| head` does; nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (OSError, MemoryError, RuntimeError) as error:
        from maskov.models.scorer import is_out_of_memory

        if debug or not (isinstance(error, OSError) or is_out_of_memory(error)):
            raise
        say(f"{name}: {_MEMORY if is_out_of_memory(error) else reason_of(error)}.")
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except KeyboardInterrupt:
        say(f"{name}: stopped")
        sys.exit(INTERRUPTED)
