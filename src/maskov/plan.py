"""From the arguments of a function to the plan of a run, and from there to the run.

A plan is all that a run needs: it begins a run, or continues one. `execute` carries it out. It is
what functions and commands call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskov import api
from maskov.arguments import (
    OF_KERNELS,
    OF_SCHEDULES,
    Arguments,
    arguments_of,
    check_checkpoints,
    check_population,
    check_start,
    check_values,
    draws,
    kernel_of,
    population_of,
    refuse_unused,
    schedule_of,
    stopping_rule,
    with_defaults,
    with_room,
    workers_of,
)
from maskov.config import (
    Execution,
    Manifest,
    ModelConfig,
    ModelSource,
    RunConfig,
    Schedule,
    fields_of,
)
from maskov.energies import as_energy
from maskov.energies.ordered import Ordered
from maskov.errors import LOG, InputError, ModelError, refuse
from maskov.kernels import Draws, Kernel, Population
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.runs.coordinator import Coordinator, Listener, Silent
from maskov.runs.files import locked, new_folder
from maskov.runs.manifest import (
    check_trusted,
    kernel_data,
    load_model,
    manifest_of,
    models_of,
    resizes,
    with_burn_in,
)
from maskov.runs.preparation import (
    check_epochs,
    check_kernel,
    check_layout,
    check_schedule,
    inputs_of,
    layout_of,
    named_texts,
    rebuild,
    schedule_for_passes,
    threads,
    tuned_kernel,
    with_prior,
)
from maskov.runs.result import Run, write_library
from maskov.runs.store import Store
from maskov.starts import Layout
from maskov.texts import ONE, find_blanks, template_masks
from maskov.tuning import planned_path
from maskov.ui.terminal import progress_bar
from maskov.workers import Workers
from maskov.workers.pools import carry_out, group_size

DEFAULT_LENGTH = 20
# The moves of templates with blanks of unknown length.
RESIZING = "span:2,insert-delete:1,resize:1"


@dataclass(frozen=True)
class Plan:
    """A run to carry out: what it is, what moves its chains, where they start, and who works.

    A new run is written to `out`, if that is a path. One that `resumes` is there already.
    """

    manifest: Manifest
    model: MaskedModel
    kernel: Kernel
    layout: Layout
    workers: Workers = field(default_factory=Workers)
    out: Path | None = None
    checkpoint_every: float = 60.0
    notes: tuple[str, ...] = ()
    resumes: bool = False


def plan(**given: Any) -> Plan:
    """Return the plan of a run from the arguments of `maskov.sample`, or refuse them.

    What needs no model to be refused is refused before one is loaded.
    """
    asked = arguments_of(api.sample, given)
    own = isinstance(asked.kernel, Kernel)
    if own:
        asked.refuse_both("a kernel", *OF_KERNELS)
    if asked.schedule is not None:
        asked.refuse_both("a schedule", *OF_SCHEDULES)
    refuse_unused(asked)
    check_values(asked)
    workers = workers_of(asked)
    rule = stopping_rule(asked.until)
    given_model = asked.given_model()
    loading = given_model.loading()

    if own and asked.burn_in is None and asked.schedule is None:
        asked.burn_in = 0
    automatic_burn_in = asked.schedule is None and asked.burn_in is None
    blanks = (one for line in asked.templates or () for one in find_blanks(str(line)))
    if asked.moves is None and asked.kernel == "mh" and any(one != ONE for one in blanks):
        asked.moves = RESIZING
    check_start(asked)
    with_defaults(asked)
    kernel, block = (asked.kernel, None) if own else kernel_of(asked, loading)
    if isinstance(kernel.energy, Ordered) and draws(asked):
        kernel = Draws(kernel.energy)
        asked.epochs, asked.burn_in = asked.epochs or 1, asked.burn_in or 0
    if asked.particles is not None:
        kernel = population_of(asked, kernel)
    elif isinstance(kernel, Population):
        check_population(asked, kernel)
    schedule, known = schedule_of(asked, kernel, block, loading)
    if asked.out is not None:
        Store.check_free(asked.out)

    model = given_model.load(asked.precision)
    check_kernel(kernel, model)
    kernel = with_room(kernel, asked, model)
    kernel, prior = with_prior(kernel, asked.length_prior, model)
    if asked.passes is None and asked.particles is None:
        check_epochs(schedule, asked.chains, asked.thin)
    scorer = Scorer(model, asked.token_budget, asked.stop)
    # Only a search for lengths runs passes.
    with threads(workers.threads or 1, model) if asked.lengths == "searched" else nullcontext():
        inputs = inputs_of(
            model, lengths=asked.lengths, chains=asked.chains, seed=asked.seed,
            sampled=resizes(kernel), scorer=scorer, **_start(asked, model),
        )  # fmt: skip
    constraints = kernel.conditional.constraints
    layout = layout_of(model, inputs, asked.chains, asked.seed).fitted(model, constraints)
    layout.check(model, constraints)
    check_layout(kernel, inputs, layout)
    running = with_burn_in(
        kernel, schedule, model, loading.trust_remote_code, trust_parts=True, known=known
    )
    if isinstance(kernel, Population) and not own:
        with threads(workers.threads or 1, model):
            kernel = planned_path(kernel, layout, scorer, CounterRng(asked.seed), asked.passes)
        running, points = kernel, len(kernel.path)
        schedule = Schedule(epochs=points, burn_in=points - 1)
    elif asked.passes is not None:
        schedule, running = schedule_for_passes(
            asked.passes, running, schedule, prior, layout, scorer, CounterRng(asked.seed),
            automatic_burn_in,
        )  # fmt: skip
        refuse(
            (
                asked.burn_in_energy not in (None, "same") and schedule.burn_in_energy is None,
                f"{asked.passes} passes of a chain are one epoch, which leaves no burn-in: ask "
                "for more --passes or drop --burn-in-energy.",
            )
        )
        check_epochs(schedule, asked.chains, asked.thin)
    check_schedule(kernel, schedule, inputs, layout, asked.thin, asked.trace, rule is not None)
    config = RunConfig(
        model=ModelConfig(
            name=model.name,
            fingerprint=model.fingerprint(),
            source=given_model.source or model.source or ModelSource(model.name),
            precision=model.precision,  # type: ignore[arg-type]
            device=str(model.device),
        ),
        kernel=kernel_data(kernel, alone=asked.out is None and workers.here),
        schedule=schedule,
        inputs=inputs,
        execution=Execution(
            token_budget=scorer.batcher.budget,
            resident=asked.resident or group_size(scorer, running, schedule, layout),
            trace=asked.trace,
            threads=workers.threads or 1,
        ),
        chains=asked.chains,
        start=asked.start,
        thin=asked.thin,
        seed=asked.seed,
        length_prior=prior,
        until=rule,
    )
    return Plan(
        manifest_of(config, model, kernel, models_of(running), layout, asked.name),
        model,
        running,
        layout,
        workers,
        asked.out,
        asked.checkpoint_every,
        _notes(asked, schedule),
    )


def _start(asked: Arguments, model: MaskedModel) -> dict[str, Any]:
    """Return the length, texts, templates and frozen tokens that chains start from.

    With texts and templates, chains start at the texts and change only where templates have blanks.
    """
    length, texts, templates, frozen = asked.length, asked.texts, asked.templates, asked.freeze
    if texts is not None and templates is not None:
        lines, _ = named_texts(model, texts)
        frozen = template_masks(model, lines, named_texts(model, templates, blanks=True)[0])
        templates = None
    if length is None and texts is None:
        length = min(max(DEFAULT_LENGTH, model.min_length), model.max_length)
    if isinstance(length, int):
        length = (length, length)
    return {"length": length, "texts": texts, "templates": templates, "frozen": frozen}


def _notes(asked: Arguments, schedule: Schedule) -> tuple[str, ...]:
    """Return what a user may want to know before the run begins."""
    count, chains, epochs = len(asked.texts or ()), asked.chains, f"{schedule.epochs:,}"
    notes = (
        (
            asked.particles is not None,
            f"{asked.populations} populations of {asked.particles} particles go through {epochs} "
            "points, found by a pilot",
        ),
        (
            asked.passes is not None and asked.particles is None,
            f"{asked.passes or 0:,} passes of a chain are about {epochs} epochs",
        ),
        (
            count > 1,
            f"{count} texts start {chains} chain{'s' * (chains > 1)} each: {count * chains} chains",
        ),
        (
            asked.until is not None,
            f"the run ends when it has converged, after at most {epochs} epochs",
        ),
    )
    return tuple(note for holds, note in notes if holds)


# What of a manifest decides the samples of a run.
_DECIDING = (
    "config.model.fingerprint", "config.model.precision", "config.kernel", "config.schedule",
    "config.inputs", "config.chains", "config.start", "config.thin", "config.seed",
    "config.length_prior", "config.until", "energy_models",
)  # fmt: skip


def execute(
    plan: Plan, listener: Listener | None = None, stop: Callable[[], bool] | None = None
) -> Run:
    """Run the chains of a plan, from their start or from where they were stopped."""
    LOG.info("run %s: %s", plan.out or "in memory", plan.manifest.signature)
    for note in plan.manifest.notes:
        LOG.warning("%s", note)
    out, manifest = plan.out, plan.manifest
    if out is None:
        store = Store(manifest)
        _work(plan, store, listener, stop)
        return Run(store)
    if plan.resumes and (done := _finished(out)) is not None:
        return done
    with locked(out) if plan.resumes else new_folder(out):
        if plan.resumes:
            store = Store.open(out)
            store.check_unchanged()
            store.prepare()
        else:
            store = Store.create(out, manifest)
        try:
            _work(plan, store, listener, stop)
        except (ModelError, InputError):
            # A model that fails before the first epoch is over leaves nothing worth resuming.
            if not plan.resumes and not store.traces()["steps"].any():
                store.discard()
            raise
        write_library(store)
    return Run(store)


def execute_shown(
    plan: Plan | Run,
    progress: bool,
    listener: Listener | None,
    stop: Callable[[], bool] | None,
) -> Run:
    """Run the chains of a plan with a bar, if `progress` is to be shown and nobody listens.

    A run that is complete is returned as it is.
    """
    if isinstance(plan, Run):
        return plan
    config, shown = plan.manifest.config, listener is None and progress
    unit = "point" if plan.manifest.particles else "epoch"  # of the path of a population
    with progress_bar(config.schedule.epochs, config.until is not None, unit, shown=shown) as bar:
        return execute(plan, listener or bar, stop)


def _work(
    plan: Plan, store: Store, listener: Listener | None, stop: Callable[[], bool] | None
) -> None:
    config, listener = plan.manifest.config, listener or Silent()
    scorer = Scorer(plan.model, config.execution.token_budget, stop)
    kernel = tuned_kernel(store, plan.layout, plan.kernel, scorer, listener)
    coordinator = Coordinator(
        plan.layout, kernel, plan.model, store, listener, plan.checkpoint_every
    )
    if config.until is not None and "tokens" not in store.traced():
        listener.noted(
            "the run is too large to trace its tokens: energies alone decide when it ends"
        )
    carry_out(coordinator, plan.workers, stop)


def _finished(path: Path) -> Run | None:
    """Return a run that is complete, with its files whole; None if there is work left."""
    folder = Store.open(path)
    folder.check_unchanged()
    if not Run(folder).finished:
        return None
    with locked(folder.path):
        write_library(folder, anew=False)
    return Run(folder)


def plan_of_folder(**given: Any) -> Plan | Run:
    """Return the plan of a run that was begun, from the arguments of `maskov.resume`.

    A run that is complete is returned itself.
    """
    asked = arguments_of(api.resume, given, Run)
    workers, run = workers_of(asked), asked.run
    check_checkpoints(asked.checkpoint_every)
    refuse(
        (
            workers.threads is not None,
            "a run continues with the threads it began with: drop `threads`.",
        ),
        (
            isinstance(run, Run) and not run.store.durable,
            "this run has no folder to resume from: sample with `out`.",
        ),
    )
    path = run.store.path if isinstance(run, Run) else Path(run)
    if (done := _finished(path)) is not None:
        return done
    folder = Store.open(path)
    folder.check_resumable()
    manifest = folder.manifest
    trust, download = asked.trust_remote_code, asked.allow_download
    check_trusted(manifest.config.model.source, trust)
    described, sources = manifest.config.model, manifest.inputs.sources
    model = asked.model or load_model(described, sources, asked.device, trust, download)
    energy = None if asked.energy is None else as_energy(asked.energy)
    kernel, layout = rebuild(manifest, model, asked.trust_parts, download, asked.kernel, energy)
    return Plan(
        manifest, model, kernel, layout, workers, path, asked.checkpoint_every, resumes=True
    )


def plan_to_continue(plan: Plan, path: Path) -> Plan:
    """Return a plan that continues the run of a folder, if the same plan began it."""
    folder = Store.open(path)
    folder.check_resumable()
    begun, now = fields_of(folder.manifest), fields_of(plan.manifest)
    refuse(
        *(
            (
                name.startswith(_DECIDING) and begun.get(name) != now.get(name),
                f"'{path}' was begun with another "
                f"{name.removeprefix('config.').partition('.')[0]}: give another --out, or the "
                "options it was begun with.",
            )
            for name in sorted(begun.keys() | now.keys())
        )
    )
    return replace(plan, manifest=folder.manifest, out=path, resumes=True)
