"""The commands that run chains: `sample`, `infill`, `resume`, `rewrite`, `translate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskov import api
from maskov.api import DEFAULT_MODEL
from maskov.cli.commands import Json, command_of, stop_on_signals
from maskov.cli.output import (
    SHOWN,
    print_fills,
    print_json,
    print_samples,
    say,
    say_filling,
    say_summary,
)
from maskov.errors import InputError, Interrupted
from maskov.options import RUN
from maskov.ui.escaping import json_printable, printable

if TYPE_CHECKING:
    from maskov.models import MaskedModel
    from maskov.plan import Plan
    from maskov.rewriting import Rewriting
    from maskov.runs import Run
    from maskov.runs.coordinator import Listener

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress", rich_help_panel=RUN)]
TopK = Annotated[
    int | None,
    typer.Option("--top-k", min=1, help=f"fills of each template to print (default: {SHOWN})"),
]


@command_of(api.sample)
def sample(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Draw samples from a masked language model."""
    _run(given, json, quiet)


@command_of(api.infill, "texts", "length", "freeze", model=DEFAULT_MODEL)
def infill(
    given: dict[str, Any], json: Json = False, quiet: Quiet = False, top_k: TopK = None
) -> None:
    """Fill blanks with the likeliest words, each with its probability."""
    from maskov.filling import fill_as_asked

    if api.runs_chains(given):
        api.refuse_of_fills(given)
        _run(given, json, quiet, top_k)
        return
    with stop_on_signals() as stop:
        try:
            found = fill_as_asked(**given, stop=stop)
        except (Interrupted, KeyboardInterrupt):
            say("stopped; nothing was kept")
            raise typer.Exit(stop.exit_code) from None
    if json:
        print_json(found.to_json(top_k or SHOWN))
    else:
        print_fills(found.fills(), top_k=top_k)
    say_filling(found, quiet)


def _run(given: dict[str, Any], json: bool, quiet: bool, top_k: int | None = None) -> None:
    from maskov.plan import plan

    if "name" in given and "out" not in given:
        raise InputError("--name names a run folder: give one with --out.")
    planned = plan(**given)
    for note in () if quiet else planned.notes:
        say(f"note: {note}")
    _carry_out(planned, json, quiet, top_k)


@command_of(api.resume)
def resume(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Continue a run that was stopped, from its last checkpoint."""
    from maskov.plan import plan_of_folder
    from maskov.runs import Run

    found = plan_of_folder(**given)
    if isinstance(found, Run):
        _print(found, None, json, quiet)
    else:
        _carry_out(found, json, quiet)


@command_of(api.rewrite, model=DEFAULT_MODEL)
def rewrite(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Rewrite lines: texts like them that a classifier or another expert prefers."""
    from maskov.rewriting import plan_rewriting

    task = plan_rewriting(**given)
    out, epochs = given.get("out"), task.rewriter.epochs
    with _watched(task.model, epochs, quiet, out, "repeat the command") as watch:
        found = task.rewritings(*watch)
    for one in found:
        sys.stdout.write(_rewritten(one, json, task.every_chain))


def _rewritten(one: Rewriting, json: bool, every_chain: bool) -> str:
    """Return what is printed: JSON, a line, or a record of FASTA."""
    from maskov.fasta import Record, numbered, to_fasta

    if json:
        return json_printable(one.to_json()) + "\n"
    if one.name is None:
        return printable(one.text) + "\n"
    name = numbered(one.name, one.chain) if every_chain else one.name
    return printable(to_fasta([Record(name, one.text)]))


@command_of(api.translate)
def translate(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Translate lines with a conditional masked model or an autoregressive one."""
    from maskov.translation.api import plan_translation

    task = plan_translation(**given)
    out, method = given.get("out"), task.method
    unseen = quiet or method.name == "ar"
    with _watched(task.model, method.sweeps, unseen, out, f"maskov resume {out}") as watch:
        translations = task.translations(*watch)
    print_json(one.to_json() if json else one.text for one in translations)


def _carry_out(plan: Plan, json: bool, quiet: bool, top_k: int | None = None) -> None:
    """Carry out a plan and print what comes of it."""
    from maskov.plan import execute
    from maskov.runs.manifest import own_parts

    config = plan.manifest.config
    command = f"maskov resume {plan.out}" + " --trust-parts" * bool(own_parts(config))
    epochs, most = config.schedule.epochs, config.until is not None
    unit = "point" if plan.manifest.particles else "epoch"  # of the path of a population
    with _watched(plan.model, epochs, quiet, plan.out, command, most, unit) as watch:
        run = execute(plan, *watch)
    _print(run, plan.model, json, quiet, top_k)


@contextmanager
def _watched(
    model: MaskedModel,
    epochs: int,
    quiet: bool,
    out: Path | None,
    command: str,
    most: bool = False,
    unit: str = "epoch",
) -> Iterator[tuple[Listener | None, Callable[[], bool]]]:
    """Yield who listens and who asks to stop: a view of the work, and signals that end it softly.

    Work that was stopped is continued by the command, if it was saved.
    """
    from maskov.ui.terminal import progress_for, watched_stop

    with stop_on_signals() as stop:
        try:
            with progress_for(model, epochs, quiet, most, unit) as view:
                yield view, watched_stop(stop, view)
        except (Interrupted, KeyboardInterrupt):
            if out is not None and out.exists():
                say(f"stopped and saved; continue with: {command}")
            else:
                say("stopped; nothing was saved (with --out it can be continued)")
            raise typer.Exit(stop.exit_code) from None


def _print(
    run: Run, model: MaskedModel | None, json: bool, quiet: bool, top_k: int | None = None
) -> None:
    """Print the samples, or the fills of templates, and on standard error the summary."""
    if json:
        print_json(sample.to_json() for sample in run.samples)
    elif run.manifest.inputs.templates is not None and model is not None:
        print_fills(run.fills(model=model), run.manifest.inputs.names, top_k)
    else:
        print_samples(run.samples)
    if not quiet:
        say_summary(run, said="" if model is None else model.caution)
        return
    for note in run.recovered:  # progress would have said so when the run continued
        say(f"note: {note}")
