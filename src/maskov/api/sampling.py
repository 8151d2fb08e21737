"""Start a run, or continue one, from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from maskov.api.arguments import (
    as_range,
    read_options,
    refuse_both,
    refuse_unused,
    takes_options,
)
from maskov.api.kinds import TextFunction
from maskov.api.run import Run
from maskov.config import ModelSource
from maskov.energies import Energy, as_energy
from maskov.errors import InputError
from maskov.fasta import Record
from maskov.kernels import Kernel
from maskov.models import DEFAULT_MODEL, MaskedModel
from maskov.options.model import ModelOptions
from maskov.options.running import (
    check_before_loading,
    check_start,
    for_templates,
    parse_length,
    plan_run,
    start_of,
    start_run,
)
from maskov.options.sampling import SamplingOptions
from maskov.options.workers import WorkerOptions
from maskov.runs.rebuild import load_model
from maskov.runs.result import Run as StoredRun
from maskov.runs.store import Store
from maskov.runs.task_runner import Listener
from maskov.sampling import resume_chains
from maskov.schedules import Schedule
from maskov.texts import Mask
from maskov.ui.terminal import progress_bar
from maskov.workers import Workers

# Options that a model, a kernel, a schedule or workers have when they are given as objects.
OF_MODELS = tuple(one.name for one in fields(ModelOptions) if one.name != "model")
OF_KERNELS = (
    "energy", "causal_model", "moves", "span", "order", "block", "temperature", "top_p", "top_k",
    "epsilon", "delayed", "contains", "avoid", "allow", "max_changes", "block_anneal",
)  # fmt: skip
OF_SCHEDULES = (
    "epochs", "burn_in", "burn_in_energy", "target_temperature", "anneal", "target_floor",
    "block_anneal", "force_accept",
)  # fmt: skip
OF_WORKERS = (*(one.name for one in fields(WorkerOptions) if one.name != "workers"), "threads")


@takes_options(SamplingOptions)
def sample(
    model: str | Path | MaskedModel = DEFAULT_MODEL,
    kernel: Kernel | str | None = None,
    schedule: Schedule | None = None,
    *,
    length: int | tuple[int, int] | str | None = None,
    texts: Sequence[str | Record] | None = None,
    templates: Sequence[str | Record] | None = None,
    freeze: str | Sequence[Mask] | None = None,
    lengths: str = "best",
    trace: str = "every",
    progress: bool = True,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    source: ModelSource | None = None,
    workers: int | Workers | None = None,
    **options: Any,
) -> Run:
    """Draw samples from a masked language model.

        run = maskov.sample("wiki-small", energy="norm", epochs=40, chains=64)

    `model` is a name, a folder or a MaskedModel. Every option of `maskov sample` is a keyword of
    the same name with the same default; docs/how-to/python.md lists them. Instead of options,
    `kernel` and `schedule` may be objects: options that such an object has itself are then refused,
    and with a kernel there is no burn-in unless you set it. An `energy` may be an object, too,
    or a function that takes a list of texts and returns a number for each; `moves` may be objects,
    alone or in pairs with their weights: moves=[maskov.Site(), (maskov.Span(), 2.0)].

    Chains have `length` tokens (12), or a length drawn from a range ((8, 24) or "8:24"); or start
    at given `texts`; or fill the blanks of `templates`; `chains` to each. Texts and templates may
    be records of FASTA (`read_fasta`): samples then carry their names and mutations, and a run
    folder also has `samples.fa` and `mutations.csv`. Chains of a conditional model are translations
    of its sources, of the likeliest length, of the likeliest few, or of a length each draws
    (`lengths`: best, top, drawn).

    Tokens of texts that `freeze` names stay: positions counted from 1 ("1-25,40"), words ("river,
    bridge"), what a regular expression finds ("re:PATTERN"), or for each text a boolean or a sign
    (`.` is free) for each of its tokens. With both `texts` and `templates`, chains start at the
    texts and change only where their templates have a blank.

    With moves that change the length (`moves="span:2,insert-delete:1"`) lengths are sampled: any
    within the range, or from half to twice that of a text, or those of blanks such as [MASK*] and
    [MASK{2,5}]; between frozen tokens each stretch has one token at least and twice its own at
    most. `length_prior` weighs lengths: "none" (the law is exp(−E) over all lengths), "flat" (the
    default: weights found by discarded chains so that lengths are visited about evenly), or a table
    such as "8:1,12:4,16:1".

    The last sequence of each chain is kept, or with `thin` every so many epochs after burn-in. With
    `out` the run is a folder that can be resumed. With `passes` the run has as many epochs as so
    many masked passes of a chain pay for. With `until="converged"` it ends at the first of a few
    fixed epochs at which all energies and token statistics have R-hat below 1.05 and `effective`
    draws (100 unless given), or after `epochs` (2,000 unless given). With `replicas`, each chain is
    so many copies at a `ladder` of inverse temperatures, which swap their states.

    The rest decides how the work is done, not its result: `token_budget` caps the tokens of one
    model call, `resident` the chains that are on a device at once, and `workers` are processes that
    share the chains. `trace="kept"` leaves out the energies of epochs without samples where they
    would cost passes. `source` is how to load a model again that was given as an object.

    On terminals and in notebooks a bar shows the `progress`, unless it is false or a `listener`
    is told of it instead. `stop` is asked between model calls. Once it returns true, the run is
    saved, if it has a folder, and the call raises `Interrupted`: `resume` continues from there.

    Raises `InputError` for arguments that cannot be used, `ModelError` for models that cannot,
    `RunError` for folders that cannot be written, and `Interrupted`; all are `MaskovError`.
    """
    chosen, given_kernel = _chosen(model, kernel, schedule, workers, options)
    span = None if length is None else parse_length(as_range(length))
    check_start(chosen, length, texts, templates, freeze)
    chosen = for_templates(chosen, templates) if given_kernel is None else chosen
    check_before_loading(chosen, given_kernel, schedule)
    if isinstance(model, MaskedModel):
        loaded = model
    else:
        loaded = chosen.load_model()
        source = source or chosen.source()
    start = start_of(loaded, span, texts, templates, freeze)
    moving, times = plan_run(chosen, loaded, start, given_kernel, schedule)
    listening = listener is not None or not progress
    with progress_bar(times.epochs, chosen.until is not None, shown=not listening) as bar:
        run = start_run(
            chosen, loaded, moving, times, start, lengths=lengths, trace=trace, source=source,
            workers=_workers(workers, chosen), listener=listener or bar, stop=stop,
        )  # fmt: skip
    return Run.of(run)


@takes_options(SamplingOptions)
def infill(
    model: str | Path | MaskedModel,
    templates: str | Sequence[str | Record],
    kernel: Kernel | str | None = None,
    schedule: Schedule | None = None,
    *,
    texts: Sequence[str | Record] | None = None,
    trace: str = "every",
    progress: bool = True,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    source: ModelSource | None = None,
    workers: int | Workers | None = None,
    **options: Any,
) -> Run:
    """Fill the blanks of templates: sample them given the rest, from the same energy.

        run = maskov.infill("wiki-small", "The [MASK] of the town was [MASK*].", chains=16)

    A blank is [MASK] for one token, [MASK*] for a few, or [MASK{2,5}] for two to five. Chains may
    start at `texts`, which are the templates with their blanks filled in. The keywords are those of
    `sample`, as is what it returns and raises.
    """
    lines = [templates] if isinstance(templates, str) else templates
    return sample(
        model, kernel, schedule, templates=lines, texts=texts, trace=trace, progress=progress,
        listener=listener, stop=stop, source=source, workers=workers, **options,
    )  # fmt: skip


@takes_options(WorkerOptions)
def resume(
    run: str | Path | StoredRun,
    model: MaskedModel | None = None,
    device: str | None = None,
    *,
    kernel: Kernel | None = None,
    energy: Energy | TextFunction | None = None,
    checkpoint_every: float = 60.0,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    workers: int | Workers | None = None,
    trust_remote_code: bool = False,
    trust_parts: bool = False,
    allow_download: bool = False,
    **options: Any,
) -> Run:
    """Go on with a run, a folder or what `Run.open` read, from its newest whole checkpoints.

    The samples are those of a run that was never stopped, to the byte. It runs where it began,
    on a CPU or a GPU, unless another `device` is named; `workers` may be others than before.

    A manifest may be anybody's. So code that comes with a model, and modules of parts that are not
    maskov's, are run only if they are trusted here, and a model that is not on this machine is
    downloaded only with `allow_download`. What was made here may be passed instead: the `model`,
    and the `kernel` or the `energy` where the manifest names custom parts. It takes the place
    of what the manifest names if it is the same: a model by its fingerprint, a kernel or an energy
    by its parts and their arguments. Anything else is refused. Nothing that is passed needs to be
    trusted, or imported again.

    It raises what `sample` raises, `Interrupted` once `stop` returns true among it.
    """
    folder = _folder_of(run)
    if isinstance(workers, Workers):
        refuse_both(options, OF_WORKERS, "Workers")
    chosen = read_options(WorkerOptions, _with_workers(workers, options))
    opened = Store.open(folder)
    manifest = opened.manifest
    if model is None and not StoredRun(opened).finished:
        opened.check_unchanged()
        opened.check_resumable()
        model = load_model(manifest, device, trust_remote_code, allow_download)
    most, listening = manifest.config.until is not None, listener is not None or not progress
    with progress_bar(manifest.schedule.epochs, most, shown=not listening) as bar:
        found = resume_chains(
            folder, model, device, checkpoint_every, listener or bar, stop,
            workers if isinstance(workers, Workers) else chosen.build_workers(),
            trust_remote_code, trust_parts, allow_download,
            kernel, None if energy is None else as_energy(energy),
        )  # fmt: skip
    return Run.of(found)


def _folder_of(run: str | Path | StoredRun) -> Path:
    if not isinstance(run, StoredRun):
        return Path(run)
    if not run.store.durable:
        raise InputError("this run has no folder to resume from: sample with `out`.")
    return run.store.path


def _chosen(
    model: str | Path | MaskedModel,
    kernel: Kernel | str | None,
    schedule: Schedule | None,
    workers: int | Workers | None,
    given: dict[str, Any],
) -> tuple[SamplingOptions, Kernel | None]:
    """Return the options, and the kernel if it is an object; refuse options that objects have."""
    if isinstance(model, MaskedModel):
        refuse_both(given, OF_MODELS, "a model that is loaded")
    if isinstance(kernel, Kernel):
        refuse_both(given, OF_KERNELS, "a kernel")
    if schedule is not None:
        refuse_both(given, OF_SCHEDULES, "a schedule")
    if isinstance(workers, Workers):
        refuse_both(given, OF_WORKERS, "Workers")
    refuse_unused(given)
    chosen = read_options(SamplingOptions, _with_workers(workers, given))
    if isinstance(model, str | Path):
        name = str(model.resolve()) if isinstance(model, Path) else model
        chosen = replace(chosen, model=name)
    if isinstance(kernel, str):
        chosen = replace(chosen, kernel=kernel)
    return chosen, kernel if isinstance(kernel, Kernel) else None


def _with_workers(workers: int | Workers | None, given: dict[str, Any]) -> dict[str, Any]:
    return given if isinstance(workers, Workers) else {**given, "workers": workers}


def _workers(workers: int | Workers | None, options: SamplingOptions) -> Workers:
    return workers if isinstance(workers, Workers) else options.build_workers(options.threads)
