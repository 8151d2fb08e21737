"""Run chains, or continue a run: what `maskov.sample` and the commands call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from maskov.config import (
    Execution,
    ModelConfig,
    ModelSource,
    RunConfig,
    check_name,
    stopping_rule,
)
from maskov.energies import Energy
from maskov.errors import InputError, ModelError
from maskov.fasta import Record
from maskov.kernels import Kernel
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.runs.checks import (
    check_arguments,
    check_blocks,
    check_checkpoints,
    check_comparable,
    check_converges,
    check_epochs,
    check_order,
    check_prior,
    check_references,
    check_translates,
    with_prior,
)
from maskov.runs.coordinator import Coordinator
from maskov.runs.files import locked, new_folder
from maskov.runs.folder import RunFolder
from maskov.runs.inputs import inputs_of, layout_of
from maskov.runs.library import write_library
from maskov.runs.manifest import kernel_data, manifest_of
from maskov.runs.preparation import threads, tuned_kernel
from maskov.runs.rebuild import (
    GivenParts,
    check_trusted,
    load_model,
    models_of,
    rebuild,
    with_burn_in,
)
from maskov.runs.result import Run
from maskov.runs.signature import resizes
from maskov.runs.store import Store
from maskov.runs.task_runner import Listener
from maskov.schedules import Schedule
from maskov.texts import Mask
from maskov.workers import Workers
from maskov.workers.carry_out import carry_out, group_size


def run_chains(
    model: MaskedModel,
    kernel: Kernel,
    schedule: Schedule,
    *,
    chains: int = 8,
    length: int | tuple[int, int] = 20,
    start: str = "masked",
    texts: Sequence[str | Record] | None = None,
    templates: Sequence[str | Record] | None = None,
    freeze: str | Sequence[Mask] | None = None,
    lengths: str = "best",
    length_prior: str | Mapping[int, float] | None = None,
    seed: int = 0,
    thin: int = 0,
    until: str | None = None,
    effective: int | None = None,
    out: str | Path | None = None,
    name: str = "",
    token_budget: int | None = None,
    resident: int | None = None,
    trace: str = "every",
    checkpoint_every: float = 60.0,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    source: ModelSource | None = None,
    workers: Workers | None = None,
) -> Run:
    """Draw samples: many chains, each moved by `kernel` as `schedule` says.

    `maskov.sample` explains the arguments; here they are objects. `source` is how to load the model
    again.
    """
    workers = workers or Workers()
    rule = stopping_rule(until, effective)
    check_arguments(chains, start, seed, thin, resident, trace)
    check_checkpoints(checkpoint_every)
    check_name(name)
    path = None if out is None else Path(out)
    if path is not None:
        RunFolder.check_free(path)
    trust = source is not None and source.trust_remote_code
    check_translates(kernel, model)
    kernel, prior = with_prior(kernel, length_prior, model)
    check_epochs(schedule, chains, thin)
    check_order(kernel)
    running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
    if rule is not None:
        check_converges(kernel, schedule, thin, trace)
    data = kernel_data(kernel, alone=path is None and workers.here)
    scorer = Scorer(model, token_budget, stop)
    # Only a search for lengths runs passes.
    searches = lengths == "searched"
    with threads(workers.threads or 1, model) if searches else nullcontext():
        inputs = inputs_of(
            model, length, texts, templates, lengths, chains, seed, resizes(kernel), freeze, scorer
        )
    check_references(kernel, inputs)
    constraints = kernel.conditional.constraints
    layout = layout_of(model, inputs, chains, seed, constraints)
    layout.check(model, constraints)
    check_prior(kernel, layout)
    if inputs.sources is None:  # translations may be short; a block is then all of one
        check_blocks(kernel, schedule, layout)
    if rule is not None:
        check_comparable(kernel, inputs, layout)
    config = RunConfig(
        model=ModelConfig(
            name=model.name,
            fingerprint=model.fingerprint(),
            source=source
            or ModelSource(
                model.name,
                prefix=model.prefix,
                remove_smoothing=model.remove_smoothing,
                extra_letters=model.extra_letters,
            ),
            precision=model.precision,  # type: ignore[arg-type]
            device=str(model.device),
        ),
        kernel=data,
        schedule=schedule,
        inputs=inputs,
        execution=Execution(
            token_budget=scorer.batcher.budget,
            resident=resident or group_size(scorer, running, schedule, layout),
            trace=trace,  # type: ignore[arg-type]
            threads=workers.threads or 1,
        ),
        chains=chains,
        start=start,  # type: ignore[arg-type]
        thin=thin,
        seed=seed,
        length_prior=prior,
        until=rule,
    )
    manifest = manifest_of(config, model, kernel, models_of(running), layout, name)
    with new_folder(path) if path is not None else nullcontext():
        store: Store = Store(manifest) if path is None else RunFolder.create(path, manifest)
        try:
            running = tuned_kernel(store, layout, running, scorer, listener)
            coordinator = Coordinator(layout, running, model, store, listener, checkpoint_every)
            if rule is not None and listener is not None and "tokens" not in store.traced():
                listener.noted(
                    "the run is too large to trace its tokens: energies alone decide when it ends"
                )
            carry_out(coordinator, workers, stop)
        except (ModelError, InputError):
            # A model that fails before the first epoch is over leaves nothing worth resuming.
            if isinstance(store, RunFolder) and not store.traces()["steps"].any():
                store.discard()
            raise
        if isinstance(store, RunFolder):
            write_library(store)
    return Run(store)


def resume_chains(
    path: str | Path,
    model: MaskedModel | None = None,
    device: str | None = None,
    checkpoint_every: float = 60.0,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    workers: Workers | None = None,
    trust_remote_code: bool = False,
    trust_parts: bool = False,
    allow_download: bool = False,
    kernel: Kernel | None = None,
    energy: Energy | None = None,
) -> Run:
    """Continue a run from the newest whole checkpoints of its folder, to the same bytes.

    It runs where it began, on a CPU or a GPU, unless another `device` is named; `workers` may
    differ from those it began with. Code that comes with a model, and modules of parts that are not
    maskov's, are run only if they are trusted here, and a model that is not on this machine is
    downloaded only with `allow_download`: a manifest may be anybody's. A `kernel` or an `energy`
    with the parts and arguments of the run's own takes its place, so that it need not be imported.
    """
    folder = RunFolder.open(Path(path))
    workers = workers or Workers()
    if workers.threads is not None:
        raise InputError("a run continues with the threads it began with: drop `threads`.")
    check_checkpoints(checkpoint_every)
    with locked(folder.path):
        folder.check_unchanged()
        if Run(folder).finished:
            folder.restore_samples(folder.closed)
            write_library(folder, anew=False)
            return Run(folder)
        folder.check_resumable()
        check_trusted(folder.manifest, trust_remote_code)
        model = model or load_model(folder.manifest, device, trust_remote_code, allow_download)
        given = GivenParts(kernel, energy)
        parts = rebuild(folder.manifest, model, trust_parts, allow_download, given)
        folder.prepare()
        scorer = Scorer(model, folder.manifest.config.execution.token_budget, stop)
        running = tuned_kernel(folder, parts.layout, parts.kernel, scorer, listener)
        coordinator = Coordinator(parts.layout, running, model, folder, listener, checkpoint_every)
        carry_out(coordinator, workers, stop)
        write_library(folder)
    # Opened again: what was damaged when this one was opened is whole now.
    return Run(RunFolder.open(folder.path), folder.damaged, folder.recovered)
