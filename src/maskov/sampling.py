"""Start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from maskov.config import (
    DEFAULT_EPOCHS,
    MOST_UNTIL_CONVERGED,
    Execution,
    ModelConfig,
    ModelSource,
    RunConfig,
    check_name,
    stopping_rule,
)
from maskov.defaults import default_kernel, default_schedule
from maskov.errors import InputError, ModelError
from maskov.fasta import Record
from maskov.frozen import Mask
from maskov.kernels import Exchange, Kernel
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.runs.checks import (
    check_arguments,
    check_blocks,
    check_checkpoints,
    check_comparable,
    check_converges,
    check_epochs,
    check_execution,
    check_prior,
    check_references,
    with_prior,
)
from maskov.runs.coordinator import Coordinator
from maskov.runs.folder import RunFolder
from maskov.runs.inputs import inputs_of, layout_of
from maskov.runs.library import write_library
from maskov.runs.lock import locked, new_folder
from maskov.runs.manifest import kernel_data, manifest_of
from maskov.runs.preparation import schedule_for_passes, tuned_kernel
from maskov.runs.rebuild import check_trusted, load_model, models_of, rebuild, with_burn_in
from maskov.runs.result import Run
from maskov.runs.signature import resizes
from maskov.runs.store import MemoryStore, Store
from maskov.runs.task_runner import Listener
from maskov.schedules import Schedule
from maskov.workers import Workers
from maskov.workers.carry_out import carry_out, group_size


def sample(
    model: MaskedModel,
    kernel: Kernel | None = None,
    schedule: Schedule | None = None,
    *,
    chains: int = 8,
    length: int | tuple[int, int] = 20,
    start: str = "masked",
    texts: Sequence[str | Record] | None = None,
    templates: Sequence[str | Record] | None = None,
    frozen: str | Sequence[Mask] | None = None,
    lengths: str = "best",
    length_prior: str | None = None,
    replicas: int = 1,
    ladder: Sequence[float] = (),
    seed: int = 0,
    thin: int = 0,
    passes: int | None = None,
    until: str | None = None,
    effective: int | None = None,
    out: str | Path | None = None,
    name: str = "",
    token_budget: int | None = None,
    resident: int | None = None,
    prefetch: int = 0,
    asynchronous: bool = True,
    trace: str = "every",
    checkpoint_every: float = 60.0,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    source: ModelSource | None = None,
    workers: Workers | None = None,
) -> Run:
    """Draw samples: many chains, each moved by `kernel` as `schedule` says.

    Without a kernel that is `default_kernel`, and without either it begins with the burn-in of
    `default_schedule`.

    Chains have `length` tokens (or a length drawn from a range), or start at given `texts`, or
    fill the blanks of `templates`, `chains` to each. Those of a conditional model are translations
    of its sources, `chains` to each, of the likeliest length, of the likeliest few, or of a length
    each draws (`lengths`: best, top, drawn). The last sequence of each chain is kept, or with
    `thin` every so many epochs after burn-in. With `out` the run is a folder that can be resumed.
    `name` is what reports and pages call it. `source` is how to load the model again. Texts and
    templates may be records of FASTA (`read_fasta`): samples then carry their names and mutations,
    and a run folder also has `samples.fa` and `mutations.csv`.

    Tokens of texts that are `frozen` stay: positions counted from 1 ("1-25,40"), words ("river,
    bridge"), what a regular expression finds ("re:PATTERN"), or for each text a boolean or a sign
    (`.` is free) for each of its tokens.

    With a `Resize` move lengths are sampled: any within the range, or from half to twice that of a
    text, or those of blanks such as [MASK*] and [MASK{2,5}]; between frozen tokens each stretch has
    one token at least and twice its own at most. `length_prior` weighs lengths: "none" (the law is
    exp(−E) over all lengths), "flat" (the default: weights found by discarded chains so that
    lengths are visited about evenly), or a table of weights such as "8:1,12:4,16:1".

    With `passes` the run has as many epochs as so many masked passes of a chain pay for, by what
    epochs of discarded chains cost.

    With `until="converged"` the run ends at the first of a few fixed epochs at which all energies
    and token statistics have R-hat below 1.05 and `effective` draws (100 unless given), or at the
    last epoch of the schedule (2,000 unless given). The first half of the epochs does not count,
    unless the schedule has burn-in. Each step leaves its target invariant; when the run ends
    depends on its chains.

    With `replicas`, each chain is so many copies at a `ladder` of inverse temperatures from 1
    downwards, which swap their states (`Exchange`); the run finds the ladder unless it is given.
    Samples and traces are those of the copy at 1.

    The rest decides how the work is done, not its result: `token_budget` caps the tokens of one
    model call, `resident` the chains of one group, which are on a device at once, `prefetch` the
    proposals of a chain under test at once (0: as many as keep the device busy), and chains advance
    asynchronously where their kernel allows it unless `asynchronous` is false. `trace="kept"`
    leaves out the energies of epochs without samples where they would cost passes; they are then
    not-a-number in the traces. `workers` are processes on this machine or a cluster that share the
    groups.
    """
    workers = workers or Workers()
    rule = stopping_rule(until, effective)
    ordinary = kernel is None and rule is None and replicas == 1 and not ladder
    automatic_burn_in = ordinary and schedule is None
    if automatic_burn_in:
        schedule = default_schedule()
    kernel = kernel or default_kernel()
    schedule = schedule or Schedule(epochs=DEFAULT_EPOCHS if rule is None else MOST_UNTIL_CONVERGED)
    if replicas != 1 or ladder:
        kernel = Exchange(kernel, tuple(ladder), 0 if replicas == 1 else replicas)
    check_arguments(chains, start, seed, thin, resident, prefetch, trace)
    check_checkpoints(checkpoint_every)
    check_name(name)
    path = None if out is None else Path(out)
    if path is not None:
        RunFolder.check_free(path)
    trust = source is not None and source.trust_remote_code
    kernel, prior = with_prior(kernel, length_prior)
    if passes is not None:
        if rule is not None:
            raise InputError("a run ends after --passes or --until converged, not both.")
        running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
        schedule = schedule_for_passes(
            model, running, schedule, passes, chains=chains, length=length, texts=texts,
            templates=templates, frozen=frozen, lengths=lengths, seed=seed,
            token_budget=token_budget, automatic_burn_in=automatic_burn_in,
        )  # fmt: skip
    check_epochs(schedule, chains, thin)
    running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
    check_execution(kernel, running, schedule, model, prefetch, asynchronous)
    if rule is not None:
        check_converges(kernel, schedule, thin, trace)
    data = kernel_data(kernel, alone=path is None and workers.here)
    inputs = inputs_of(
        model, length, texts, templates, lengths, chains, seed, resizes(kernel), frozen
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
    scorer = Scorer(model, token_budget, stop)
    config = RunConfig(
        model=ModelConfig(
            name=model.name,
            fingerprint=model.fingerprint(),
            source=source or ModelSource(model.name, prefix=model.prefix),
            precision=model.precision,  # type: ignore[arg-type]
            device=str(model.device),
        ),
        kernel=data,
        schedule=schedule,
        inputs=inputs,
        execution=Execution(
            token_budget=scorer.batcher.budget,
            resident=resident
            or group_size(scorer, kernel, schedule, layout, prefetch, asynchronous),
            prefetch=prefetch,
            asynchronous=asynchronous,
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
        store: Store = MemoryStore(manifest) if path is None else RunFolder.create(path, manifest)
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


def resume(
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
) -> Run:
    """Go on with a run folder from its newest whole checkpoints, to the same bytes.

    It goes on where it began, on a CPU or a GPU, unless another `device` is named; `workers` may be
    others than those it began with. Code that comes with a model, and modules of parts that are not
    maskov's, are run only if they are trusted here, and a model that is not on this machine is
    downloaded only with `allow_download`: a manifest may be anybody's.
    """
    folder = RunFolder.open(Path(path))
    workers = workers or Workers()
    if workers.threads is not None:
        raise InputError("a run goes on with the threads it began with: drop `threads`.")
    check_checkpoints(checkpoint_every)
    with locked(folder.path):
        folder.check_unchanged()
        if Run(folder).finished:
            write_library(folder, anew=False)
            return Run(folder)
        folder.check_resumable()
        check_trusted(folder.manifest, trust_remote_code)
        model = model or load_model(folder.manifest, device, trust_remote_code, allow_download)
        parts = rebuild(folder.manifest, model, trust_parts, allow_download)
        folder.prepare()
        scorer = Scorer(model, folder.manifest.config.execution.token_budget, stop)
        kernel = tuned_kernel(folder, parts.layout, parts.kernel, scorer, listener)
        coordinator = Coordinator(parts.layout, kernel, model, folder, listener, checkpoint_every)
        if listener is not None:
            for note in folder.recovered:
                listener.noted(note)
        carry_out(coordinator, workers, stop)
        damaged = coordinator.cache.damaged
        write_library(folder)
    # Opened again: what was damaged when this one was opened is whole now.
    return Run(RunFolder.open(folder.path), folder.lost or damaged, folder.recovered)
