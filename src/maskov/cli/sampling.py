"""The commands that run chains: `sample`, `infill`, `resume`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskov.cli.dataclass_options import takes_options
from maskov.cli.fills import print_fills
from maskov.cli.output import (
    OutputOptions,
    names_a_file,
    print_json,
    print_samples,
    read_frozen,
    read_texts,
    say,
    say_summary,
)
from maskov.cli.signals import stop_on_signals
from maskov.errors import InputError, Interrupted
from maskov.options.constraints import CONSTRAINTS, FREEZE
from maskov.options.sampling import SamplingOptions
from maskov.options.workers import WorkerOptions

if TYPE_CHECKING:
    from maskov.models import MaskedModel
    from maskov.runs import Run


@takes_options(SamplingOptions, output=OutputOptions)
def sample(
    options: SamplingOptions,
    output: OutputOptions,
    length: Annotated[
        str | None,
        typer.Option(
            "--length", "-l", help="tokens of a sample: 20, or a range 15:45 (default: 20)"
        ),
    ] = None,
    start_text: Annotated[
        str | None,
        typer.Option(
            "--start-text",
            help="file of texts to start --chains chains from each: FASTA, or one per line "
            "(- for stdin)",
        ),
    ] = None,
    freeze: Annotated[
        str | None, typer.Option("--freeze", help=FREEZE, rich_help_panel=CONSTRAINTS)
    ] = None,
) -> None:
    """Draw samples from a masked language model."""
    from maskov.options.running import check_start, parse_length

    check_start(options, length, start_text, None, freeze)
    texts = None if start_text is None else read_texts(start_text)
    _run(
        options,
        output,
        length=None if length is None else parse_length(length),
        texts=texts,
        freeze=read_frozen(freeze),
    )


@takes_options(SamplingOptions, output=OutputOptions)
def infill(
    options: SamplingOptions,
    output: OutputOptions,
    template: Annotated[
        str,
        typer.Argument(
            help="a text with \\[MASK] (or \\[MASK*], \\[MASK{2,5}]; in proteins _) for blanks, a "
            "file, or -"
        ),
    ],
) -> None:
    """Fill blanks: sample them given the rest, from the same energy."""
    from maskov.fasta import BLANK
    from maskov.options.running import check_start, for_templates
    from maskov.texts import find_blanks

    check_start(options, templates=template)
    # Models of letters have another blank, which may also stand in the name of a file.
    literal = bool(find_blanks(template)) or (BLANK in template and not names_a_file(template))
    if not literal and template != "-" and not Path(template).is_file():
        raise InputError(
            f"'{template}' is neither a template nor a file: write [MASK] for each blank."
        )
    lines = [template] if literal else read_texts(template)
    _run(for_templates(options, lines), output, templates=lines)


@takes_options(WorkerOptions)
def resume(
    options: WorkerOptions,
    run: Annotated[Path, typer.Argument(help="run folder")],
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1 ... (default: where the run began)")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
    trust_parts: Annotated[
        bool, typer.Option("--trust-parts", help="import parts that are not maskov's")
    ] = False,
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="download the models that the run names")
    ] = False,
    checkpoint_every: Annotated[float, typer.Option(help="seconds between checkpoints")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="JSON lines on standard output")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
) -> None:
    """Go on with a run that was stopped, from its last checkpoint."""
    from maskov.runs import Run
    from maskov.runs.folder import RunFolder
    from maskov.runs.rebuild import load_model
    from maskov.sampling import resume_chains

    folder = RunFolder.open(run)
    folder.check_unchanged()
    manifest = folder.manifest
    workers = options.build_workers()

    def go_on(**watch: Any) -> Run:
        return resume_chains(
            run, model, device, checkpoint_every, workers=workers,
            trust_remote_code=trust_remote_code, trust_parts=trust_parts,
            allow_download=allow_download, **watch,
        )  # fmt: skip

    epochs = manifest.schedule.epochs
    model = None
    if not Run(folder).finished:
        folder.check_resumable()
        model = load_model(manifest, device, trust_remote_code, allow_download)
    _watched(go_on, model, epochs, run, json, quiet, manifest.config.until is not None)


def _run(options: SamplingOptions, output: OutputOptions, **given: Any) -> None:
    """Check everything that can be checked, then load the model and sample."""
    from maskov.options.running import check_before_loading, plan_run, start_of, start_run

    check_before_loading(options)
    if options.name is not None and options.out is None:
        raise InputError("--name names a run folder: give one with --out.")
    workers = options.build_workers(options.threads)
    model = options.load_model()
    start = start_of(model, **given)
    kernel, schedule = plan_run(options, model, start)
    if not output.quiet and options.passes is not None:
        say(f"note: {options.passes:,} passes of a chain are about {schedule.epochs:,} epochs")
    texts = start["texts"]
    if not output.quiet and texts is not None and len(texts) > 1:
        each = f"{options.chains} chain{'s' * (options.chains > 1)}"
        say(f"note: {len(texts)} texts start {each} each: {len(texts) * options.chains} chains")
    if not output.quiet and options.until is not None:
        say(f"note: the run ends when it has converged, after at most {schedule.epochs:,} epochs")

    def begin(**watch: Any) -> Run:
        source = options.source()
        return start_run(
            options, model, kernel, schedule, start, source=source, workers=workers, **watch
        )

    most = options.until is not None
    _watched(begin, model, schedule.epochs, options.out, output.json, output.quiet, most)


def _watched(
    work: Callable[..., Run],
    model: MaskedModel | None,
    epochs: int,
    folder: Path | None,
    json: bool,
    quiet: bool,
    most: bool,
) -> None:
    """Do the work with a view on it, and with signals that stop it softly."""
    from maskov.runs.folder import RunFolder
    from maskov.runs.rebuild import own_parts
    from maskov.ui.terminal import progress_for, watched_stop

    with stop_on_signals() as stop:
        try:
            with ExitStack() as stack:
                view = None if model is None else progress_for(model, epochs, quiet, most)
                if view is not None:
                    stack.enter_context(view)
                run = work(listener=view, stop=watched_stop(stop, view))
        except (Interrupted, KeyboardInterrupt):
            if folder is not None:
                parts = own_parts(RunFolder.open(folder).manifest.config)
                trust = " --trust-parts" if parts else ""
                say(f"stopped and saved; continue with: maskov resume {folder}{trust}")
            else:
                say("stopped; nothing was kept (with --out a run can be resumed)")
            raise typer.Exit(stop.exit_code) from None
    _print(run, model, json, quiet)


def _print(run: Run, model: MaskedModel | None, json: bool, quiet: bool) -> None:
    """Print the samples, or the fills of templates, and on standard error the summary."""
    if json:
        print_json(sample.to_json() for sample in run.samples)
    elif run.manifest.inputs.templates is not None and model is not None:
        print_fills(run, model, quiet)
    else:
        print_samples(run.samples)
    if not quiet:
        say_summary(run, said="" if model is None else model.caution)
        return
    for note in run.recovered:  # progress would have said so when the run went on
        say(f"note: {note}")
