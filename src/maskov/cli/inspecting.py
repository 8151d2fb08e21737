"""The commands that show runs and models: `diagnose`, `report`, `serve`, `verify`, `models`."""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from maskov.cli.commands import Json, OneJson
from maskov.cli.output import as_lines, print_json, print_object, print_rows, say
from maskov.errors import InputError
from maskov.shipped import listed
from maskov.ui.escaping import json_printable, printable

# What a model is the default of, by its kind.
_DEFAULTS = {"masked": " (default)", "causal": " (default judge of evaluate)"}
# Of the token in the address of a server.
_TOKEN_BYTES = 24


def diagnose(
    run: Annotated[Path, typer.Argument(help="run folder")], json: OneJson = False
) -> None:
    """Check the convergence of a run: R-hat, effective sample sizes, rates, costs."""
    from maskov.runs import Run

    opened = Run.open(run)
    summary, diagnosis = opened.summary().to_dict(), opened.diagnose()
    if json:
        print_object({"diagnosis": diagnosis.to_dict(), **summary})
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
        print_json(finding.to_json() for finding in findings)
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
        print_json(model.to_json() for model in listed())
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
    from maskov.runs import Run
    from maskov.ui.report import build
    from maskov.ui.report.formats import content_of, format_of, write_file

    kind = format_of(format_, out)
    if kind == "html" and out is None:
        raise InputError("HTML needs a file: give --out report.html, or --format md or json.")
    data = build(
        [Run.open(path) for path in runs],
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
    try:
        from maskov.ui.viewer.live import LiveRuns
        from maskov.ui.viewer.runs import Player, RunList
        from maskov.ui.viewer.server import LOOPBACK, create_app, listen, serve as serve_app
    except ImportError as error:
        raise InputError("the pages need FastAPI: pip install '.[serve]'.") from error
    if host.lower() not in LOOPBACK:
        raise InputError(
            f"'{host}' is not an address of this machine alone: drop --host, and use the pages "
            "from other machines by `ssh -L` or a proxy with TLS."
        )
    if device is not None:
        from maskov.models import choose_device

        choose_device(device)  # refuse it now rather than on the first request
    run_list = RunList(runs or [], out)
    socket, address = listen(host, port)
    token = None if no_token else secrets.token_urlsafe(_TOKEN_BYTES)
    if no_token:
        say("warning: without a token every user of this machine can see the runs and start some.")
    live = None if read_only else LiveRuns(run_list.home, device or "auto")
    player = Player(device, trust_remote_code, trust_parts, allow_download)
    print(address + ("/" if token is None else f"/t/{token}/"), flush=True)
    count = len(run_list.paths())
    say(f"{count} run{'' if count == 1 else 's'}; listening on {address}, Ctrl-C to stop")
    serve_app(create_app(run_list, player, live, token=token), socket)
