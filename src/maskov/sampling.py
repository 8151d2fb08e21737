"""Carry out a plan: begin a run, or continue one. It is what functions and commands call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskov import api
from maskov.arguments import arguments_of
from maskov.config import field_hashes
from maskov.energies import as_energy
from maskov.errors import InputError, ModelError, refuse
from maskov.models.scorer import Scorer
from maskov.plan import Plan, check_checkpoints, workers_of
from maskov.runs.coordinator import Coordinator, Listener
from maskov.runs.files import locked, new_folder
from maskov.runs.manifest import GivenParts, check_trusted, load_model, rebuild
from maskov.runs.preparation import tuned_kernel
from maskov.runs.result import Run, write_library
from maskov.runs.store import Store
from maskov.ui.terminal import progress_bar
from maskov.workers.pools import carry_out

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
    if plan.resumes:
        return _continue(plan, listener, stop)
    with new_folder(plan.out) if plan.out is not None else nullcontext():
        out, manifest = plan.out, plan.manifest
        store: Store = Store(manifest) if out is None else Store.create(out, manifest)
        try:
            _work(plan, store, listener, stop)
        except (ModelError, InputError):
            # A model that fails before the first epoch is over leaves nothing worth resuming.
            if store.durable and not store.traces()["steps"].any():
                store.discard()
            raise
        if store.durable:
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
    config = plan.manifest.config
    scorer = Scorer(plan.model, config.execution.token_budget, stop)
    kernel = tuned_kernel(store, plan.layout, plan.kernel, scorer, listener)
    coordinator = Coordinator(
        plan.layout, kernel, plan.model, store, listener, plan.checkpoint_every
    )
    if config.until is not None and listener is not None and "tokens" not in store.traced():
        listener.noted(
            "the run is too large to trace its tokens: energies alone decide when it ends"
        )
    carry_out(coordinator, plan.workers, stop)


def _continue(plan: Plan, listener: Listener | None, stop: Callable[[], bool] | None) -> Run:
    assert plan.out is not None
    if (done := _finished(plan.out)) is not None:
        return done
    with locked(plan.out):
        folder = Store.open(plan.out)
        folder.check_unchanged()
        folder.prepare()
        _work(plan, folder, listener, stop)
        write_library(folder)
    # Opened again: what was damaged when this one was opened is whole now.
    return Run(Store.open(folder.path), folder.damaged, folder.recovered)


def _finished(path: Path) -> Run | None:
    """Return a run that is complete, with its files whole; None if there is work left."""
    folder = Store.open(path)
    folder.check_unchanged()
    if not Run(folder).finished:
        return None
    with locked(folder.path):
        write_library(folder, anew=False)
    return Run(folder)


def _begun(path: Path) -> Store:
    """Open a folder of a run that can be continued."""
    folder = Store.open(path)
    folder.check_unchanged()
    folder.check_resumable()
    return folder


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
    manifest = _begun(path).manifest
    trust, download = asked.trust_remote_code, asked.allow_download
    check_trusted(manifest, trust)
    model = asked.model or load_model(manifest, asked.device, trust, download)
    parts = GivenParts(asked.kernel, None if asked.energy is None else as_energy(asked.energy))
    found = rebuild(manifest, model, asked.trust_parts, download, parts)
    return Plan(
        manifest, model, found.kernel, found.layout, workers, path, asked.checkpoint_every,
        resumes=True,
    )  # fmt: skip


def plan_to_continue(plan: Plan, path: Path) -> Plan:
    """Return a plan that continues the run of a folder, if the same plan began it."""
    folder = _begun(path)
    begun, now = field_hashes(folder.manifest), field_hashes(plan.manifest)
    for name in sorted(begun.keys() | now.keys()):
        if name.startswith(_DECIDING) and begun.get(name) != now.get(name):
            what = name.removeprefix("config.").partition(".")[0]
            raise InputError(
                f"'{path}' was begun with another {what}: give another --out, or the options it "
                "was begun with."
            )
    return replace(plan, manifest=folder.manifest, out=path, resumes=True)
