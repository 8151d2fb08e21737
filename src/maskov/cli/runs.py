"""The commands that run chains, and those that show runs and models."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import maskov
from maskov import api
from maskov.api import DEFAULT_MODEL
from maskov.cli.commands import (
    SHOWN,
    Json,
    OneJson,
    as_lines,
    command_of,
    print_fills,
    print_json,
    print_object,
    print_rows,
    print_samples,
    say,
    say_filling,
    say_summary,
    stop_on_signals,
)
from maskov.errors import refuse, refusing
from maskov.options import RUN
from maskov.shipped import listed
from maskov.ui.escaping import json_printable, printable

if TYPE_CHECKING:
    from maskov.plan import Plan
    from maskov.runs.coordinator import Listener

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress", rich_help_panel=RUN)]
# What a model is the default of, by its kind.
_DEFAULTS = {"masked": " (default)", "causal": " (default judge of evaluate)"}
# Of the token in the address of a server.
_TOKEN_BYTES = 24


@command_of(api.sample)
def sample(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Draw samples from a masked language model."""
    _run(given, json, quiet)


@command_of(api.infill, model=DEFAULT_MODEL)
def infill(
    given: dict[str, Any],
    json: Json = False,
    quiet: Quiet = False,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=1, help=f"fills of each template to print (default: {SHOWN})"),
    ] = None,
) -> None:
    """Fill blanks with the likeliest words, each with its probability."""
    from maskov.filling import fill_as_asked

    if api.runs_chains(given):
        _run(given, json, quiet, top_k)
        return
    with stop_on_signals(lambda: "stopped; nothing was kept") as stop:
        found = fill_as_asked(**given, stop=stop)
    if json:
        print_json(found.to_json(top_k or SHOWN))
    else:
        print_fills(found.fills(), top_k=top_k, counted=False)
    say_filling(found, quiet)


def _run(given: dict[str, Any], json: bool, quiet: bool, top_k: int | None = None) -> None:
    from maskov.plan import plan

    refuse((
        "name" in given and "out" not in given,
        "--name names a run folder: give one with --out.",
    ))  # fmt: skip
    planned = plan(**given)
    for note in () if quiet else planned.notes:
        say(f"note: {note}")
    _carry_out(planned, json, quiet, top_k)


@command_of(api.resume)
def resume(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Continue a run that was stopped, from its last checkpoint."""
    from maskov.plan import plan_of_folder

    found = plan_of_folder(**given)
    if isinstance(found, maskov.Run):
        _print(found, None, json, quiet)
    else:
        _carry_out(found, json, quiet)


@command_of(api.rewrite, model=DEFAULT_MODEL)
def rewrite(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Rewrite lines: texts like them that a classifier or another expert prefers."""
    from maskov.fasta import numbered
    from maskov.rewriting import plan_rewriting

    task = plan_rewriting(**given)
    asked, out = task.asked, task.asked.out
    with _watched(task.model, asked.epochs, quiet, out, "repeat the command") as watch:
        found = task.rewritings(*watch)
    for one in found:
        if json:
            print_json([one.to_json()])
        elif one.name is None:
            print(printable(one.text))
        else:
            name = numbered(one.name, one.chain) if asked.every_chain else one.name
            print(printable(maskov.to_fasta([maskov.Record(name, one.text)])), end="")


@command_of(api.translate)
def translate(given: dict[str, Any], json: Json = False, quiet: Quiet = False) -> None:
    """Translate lines with a conditional masked model or an autoregressive one."""
    from maskov.translation import plan_translation

    task = plan_translation(**given)
    out, method = given.get("out"), task.method
    with _watched(
        task.model, method.settled.epochs, quiet or method.name == "ar", out, f"maskov resume {out}"
    ) as watch:
        translations = task.translations(*watch)
    print_json(one.to_json() if json else one.text for one in translations)


def _carry_out(plan: Plan, json: bool, quiet: bool, top_k: int | None = None) -> None:
    """Carry out a plan and print what comes of it."""
    from maskov.plan import execute
    from maskov.runs.manifest import own_parts

    config = plan.manifest.config
    command = f"maskov resume {plan.out}" + " --trust-parts" * bool(own_parts(config))
    with _watched(
        plan.model,
        config.schedule.epochs,
        quiet,
        plan.out,
        command,
        most=config.until is not None,
        unit="point" if plan.manifest.particles else "epoch",  # of the path of a population
    ) as watch:
        run = execute(plan, *watch)
    _print(run, plan.model, json, quiet, top_k)


@contextmanager
def _watched(
    model: maskov.MaskedModel,
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
    from maskov.ui.terminal import progress_for

    def told() -> str:
        if out is not None and out.exists():
            return f"stopped and saved; continue with: {command}"
        return "stopped; nothing was saved (with --out it can be continued)"

    def asked() -> bool:  # between batches, so that the view hears of the work
        if view is not None:
            view.worked()
        return stop()

    with stop_on_signals(told) as stop, progress_for(model, epochs, quiet, most, unit) as view:
        yield view, asked


def _print(
    run: maskov.Run,
    model: maskov.MaskedModel | None,
    json: bool,
    quiet: bool,
    top_k: int | None = None,
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
    for note in run.recovered if quiet else ():  # progress would have told
        say(f"note: {note}")


def diagnose(
    run: Annotated[Path, typer.Argument(help="run folder")], json: OneJson = False
) -> None:
    """Check the convergence of a run: R-hat, effective sample sizes, rates, costs."""
    opened = maskov.Run.open(run)
    summary, diagnosis = vars(opened.summary()), opened.diagnose()
    if json:
        print_object({"diagnosis": diagnosis, **summary})
        return
    # Sentences are not folded, so that grep finds them.
    print(printable("\n".join(diagnosis.verdict.lines())))
    for table in diagnosis.tables():
        print()
        print_rows(table.head, table.rows, table.head[:1])
    for note in diagnosis.notes:
        print(printable(f"note: {note}"))
    print()
    print_rows((), [(name.replace("_", " "), as_lines(one)) for name, one in summary.items()])


def verify(json: Json = False) -> None:
    """Prove the kernels on the paper's counter-example, by their exact transition matrices."""
    from maskov.exact import verify as verify_kernels

    findings = verify_kernels()
    if json:
        for finding in findings:
            print_object(finding)
        return
    head = ("kernel", "target", "claims invariance", "max |πP − π|", "stationary law")
    rows = [
        (
            one.kernel, one.target, "yes" if one.claims_invariance else "no",
            f"{one.invariance_error:.1e}",
            " ".join(f"{state}:{p:.4f}" for state, p in one.stationary.items()),
        )
        for one in findings
    ]  # fmt: skip
    print_rows(head, rows, words=head)


def models(json: Json = False) -> None:
    """List the models that need no download."""
    if json:
        for model in listed():
            print_object(model)
        return
    # One block per model: the description does not fit into a line of a terminal.
    for model in listed():
        size = f", {model.bytes / 2**20:.1f} MiB" if model.bytes else ""
        rows = {
            "model": model.name + (_DEFAULTS[model.kind] if model.default else ""),
            "description": f"{model.kind}: {model.summary}",
            "translates": ", ".join(model.pairs),
            "size": f"{model.parameters:,} parameters{size}",
            "trained on": model.training_data,
            "licence": model.licence,
            "quality": "; ".join(f"{name} {one:g}" for name, one in (model.quality or {}).items()),
        }
        print_rows((), [row for row in rows.items() if row[1]])
        print()


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")],
    out: Annotated[
        Path | None, typer.Option(help="file to write (default for md and json: standard output)")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="html, md or json (default: suffix of --out)"),
    ] = None,
    terms: Annotated[
        bool, typer.Option("--terms", help="shade tokens by their terms; loads the run's model")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=0, help="samples per run (default: 1000, or 200 with --terms)")
    ] = None,
    title: Annotated[str | None, typer.Option(help="heading (default: names of the runs)")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with a run's model")
    ] = False,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="download a run's model for --terms")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="device for --terms (default: that of the run)")
    ] = None,
) -> None:
    """Write a self-contained page about runs: verdicts, charts, samples, comparison."""
    from maskov.runs.files import write_file
    from maskov.ui.report import build, content_of, format_of

    kind = format_of(format_, out)
    refuse((
        kind == "html" and out is None,
        "HTML needs a file: give --out report.html, or --format md or json.",
    ))  # fmt: skip
    data = build(
        [maskov.Run.open(path) for path in runs],
        title=title,
        samples=samples,
        terms=terms,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_download=allow_download,
    )
    content = content_of(data, kind)
    if out is None:
        escape = json_printable if kind == "json" else printable
        sys.stdout.write(escape(content.decode()))
        return
    write_file(out, content)
    say(f"{out}: {len(runs)} run{'s' * (len(runs) > 1)}, {len(content) / 1e6:.1f} MB")


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUNS]...", help="run folders or their parents (default: runs/)"),
    ] = None,
    host: Annotated[
        str, typer.Option(help="address of this machine alone: 127.0.0.1, ::1 or localhost")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 for any free port")] = 8764,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="no token in the address: every user of this machine can then see and start runs",
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="folder for runs started from the page")] = (
        Path("runs")
    ),
    read_only: Annotated[
        bool, typer.Option("--read-only", help="do not let the page start runs")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="device for models (default: that of each run)")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with a run's model")
    ] = False,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="download models that runs name")
    ] = False,
    trust_parts: Annotated[
        bool, typer.Option("--trust-parts", help="import a run's parts that are not maskov's")
    ] = False,
) -> None:
    """Show runs in a browser: play chains step by step, start a small run and watch it.

    The printed address contains a secret token; without it the server shows nothing.
    """
    from maskov.models import choose_device

    with refusing("the pages need FastAPI: pip install '.[serve]'.", ImportError):
        from maskov.ui.viewer.runs import Player, RunList
        from maskov.ui.viewer.server import LOOPBACK, LiveRuns, create_app, listen, server_of
    refuse((
        host.lower() not in LOOPBACK,
        f"'{host}' is not an address of this machine alone: drop --host, and use the pages "
        "from other machines by `ssh -L` or a proxy with TLS.",
    ))  # fmt: skip
    choose_device(device or "auto")  # refuse it now rather than on the first request
    run_list = RunList(runs or [], out)
    socket, address = listen(host, port)
    token = None if no_token else secrets.token_urlsafe(_TOKEN_BYTES)
    if no_token:
        say("warning: without a token every user of this machine can see the runs and start some.")
    app = create_app(
        run_list,
        Player(device, trust_remote_code, trust_parts, allow_download),
        None if read_only else LiveRuns(run_list.home, device or "auto"),
        token=token,
    )
    print(address + ("/" if token is None else f"/t/{token}/"), flush=True)
    count = len(run_list.paths())
    say(f"{count} run{'' if count == 1 else 's'}; listening on {address}, Ctrl-C to stop")
    server_of(app).run(sockets=[socket])
