"""The commands that run chains: `sample`, `infill`, `resume`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskov.cli.constraint_options import CONSTRAINTS, FREEZE, read_frozen
from maskov.cli.dataclass_options import takes_options
from maskov.cli.fills import print_fills
from maskov.cli.options import SamplingOptions
from maskov.cli.output import print_json, print_samples, read_texts, say, say_summary
from maskov.cli.signals import stop_on_signals
from maskov.cli.workers import WorkerOptions
from maskov.errors import InputError, Interrupted

if TYPE_CHECKING:
    from maskov.models import MaskedModel
    from maskov.runs import Run

DEFAULT_LENGTH = 20


@takes_options(SamplingOptions)
def sample(
    options: SamplingOptions,
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
            help="file of texts to start --chains chains from each: FASTA, or one a line "
            "(- for stdin)",
        ),
    ] = None,
    freeze: Annotated[
        str | None, typer.Option("--freeze", help=FREEZE, rich_help_panel=CONSTRAINTS)
    ] = None,
) -> None:
    """Draw samples from a masked language model."""
    if start_text is not None and length is not None and not options.resizes:
        raise InputError("the texts of --start-text have their own lengths: drop --length.")
    if start_text is not None and options.start != "masked":
        raise InputError("chains start from --start-text or from --start, not both.")
    if start_text is not None and options.kernel == "mask-predict":
        raise InputError("mask-predict starts from all masked: drop --start-text.")
    if options.max_changes is not None and start_text is None:
        raise InputError("--max-changes counts changes to a text: give one with --start-text.")
    if freeze is not None and start_text is None:
        raise InputError("--freeze names tokens of a text: give one with --start-text.")
    texts = None if start_text is None else read_texts(start_text)
    frozen = read_frozen(freeze)
    span = None if length is None else parse_length(length)
    usual = DEFAULT_LENGTH if texts is not None else None
    _run(
        options,
        lambda model: {
            "length": span or usual or _usual(model), "texts": texts, "frozen": frozen,
        },
    )  # fmt: skip


@takes_options(SamplingOptions)
def infill(
    options: SamplingOptions,
    template: Annotated[
        str,
        typer.Argument(
            help="a text with \\[MASK] (or \\[MASK*], \\[MASK{2,5}]) for blanks, a file, or -"
        ),
    ],
) -> None:
    """Fill blanks: sample them given the rest, from the same energy."""
    from maskov.starts import ONE, find_blanks

    if options.max_changes is not None:
        raise InputError("a template changes only in its blanks: drop --max-changes.")
    literal = bool(find_blanks(template))
    if not literal and template != "-" and not Path(template).is_file():
        raise InputError(
            f"'{template}' is neither a template nor a file: write [MASK] for each blank."
        )
    lines = [template] if literal else read_texts(template)
    if any(blank != ONE for line in lines for blank in find_blanks(str(line))):
        options = options.with_resizing()
    _run(options, lambda model: {"templates": lines})


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
    from maskov.sampling import resume as resume_run

    folder = RunFolder.open(run)
    folder.check_unchanged()
    manifest = folder.manifest
    workers = options.build_workers()

    def go_on(**watch: Any) -> Run:
        return resume_run(
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


def parse_length(text: str) -> tuple[int, int]:
    """Read `20` or `15:45`."""
    first, colon, last = text.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError:
        raise InputError(f"the length '{text}' is no number or range; write 20 or 15:45.") from None


def _usual(model: MaskedModel) -> tuple[int, int]:
    """Return the default length, or the nearest that the model takes."""
    length = min(max(DEFAULT_LENGTH, model.min_length), model.max_length)
    return length, length


def _run(options: SamplingOptions, origin: Callable[[MaskedModel], dict[str, Any]]) -> None:
    """Check everything that can be checked, then load the model and sample."""
    from maskov.runs.folder import RunFolder
    from maskov.runs.preparation import schedule_for_passes
    from maskov.runs.rebuild import with_burn_in
    from maskov.sampling import sample as sample_run

    schedule = options.build_schedule()
    options.build_kernel("cpu")
    workers = options.build_workers(options.threads)
    if options.out is not None:
        RunFolder.check_free(options.out)
    model = options.load_model()
    kernel = options.with_room(model).build_kernel(model.device)
    given = origin(model)
    if options.passes is not None:
        trust = options.trust_remote_code
        running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
        schedule = schedule_for_passes(
            model, running, schedule, options.passes, chains=options.chains, seed=options.seed,
            token_budget=options.token_budget, automatic_burn_in=options.burn_in is None, **given,
        )  # fmt: skip
        if options.burn_in_energy not in (None, "same") and schedule.burn_in_energy is None:
            raise InputError(
                f"{options.passes} passes of a chain are one epoch, which leaves no burn-in: ask "
                "for more --passes or drop --burn-in-energy."
            )
        if not options.quiet:
            say(f"note: {options.passes:,} passes of a chain are about {schedule.epochs:,} epochs")
    if not options.quiet and options.until is not None:
        say(f"note: the run ends when it has converged, after at most {schedule.epochs:,} epochs")
    if not options.quiet and options.kernel != "mh" and options.energy != "raw":
        say(f"note: '{options.kernel}' has no target; --energy plays no part (both are traced)")

    def begin(**watch: Any) -> Run:
        return sample_run(
            model,
            kernel,
            schedule,
            chains=options.chains,
            start=options.start,
            length_prior=options.length_prior,
            seed=options.seed,
            thin=options.thin,
            until=options.until,
            effective=options.effective,
            out=options.out,
            token_budget=options.token_budget,
            resident=options.resident,
            prefetch=options.prefetch,
            asynchronous=options.asynchronous,
            checkpoint_every=options.checkpoint_every,
            source=options.source(),
            workers=workers,
            **given,
            **watch,
        )

    most = options.until is not None
    _watched(begin, model, schedule.epochs, options.out, options.json, options.quiet, most)


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
    from maskov.cli.terminal import progress_for, watched_stop
    from maskov.runs.folder import RunFolder
    from maskov.runs.rebuild import own_parts

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
                say(f"stopped and saved; go on with: maskov resume {folder}{trust}")
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
