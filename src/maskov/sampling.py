"""Start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from maskov.config import MOST_TRACED, Execution, Manifest, ModelConfig, ModelSource, RunConfig
from maskov.energies import Raw
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError, ModelError
from maskov.execution.loop import kernel_at
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.registry import kernel_name, to_data
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import Site, Sweep
from maskov.random import CounterRng
from maskov.runs.coordinator import Coordinator
from maskov.runs.folder import RunFolder
from maskov.runs.inputs import inputs_of, layout_of
from maskov.runs.lock import locked, new_folder
from maskov.runs.rebuild import check_trusted, load_model, rebuild
from maskov.runs.result import Run
from maskov.runs.signature import moves_of, signature, versions
from maskov.runs.store import MemoryStore, Store
from maskov.runs.task_runner import Listener, TaskRunner
from maskov.schedules import Schedule
from maskov.starts import STARTS, Layout
from maskov.workers import Workers
from maskov.workers.local import Local
from maskov.workers.pool import automatic_count, pool_for


def sample(
    model: MaskedModel,
    kernel: Kernel | None = None,
    schedule: Schedule | None = None,
    *,
    chains: int = 8,
    length: int | tuple[int, int] = 20,
    start: str = "masked",
    texts: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
    lengths: str = "best",
    seed: int = 0,
    thin: int = 0,
    out: str | Path | None = None,
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

    Chains have `length` tokens (or a length drawn from a range), or start at given `texts`, or
    fill the blanks of `templates`, `chains` to each. Those of a conditional model are translations
    of its sources, `chains` to each, of the likeliest length, of the likeliest few, or of a length
    each draws (`lengths`: best, top, drawn). The last sequence of each chain is kept, or
    with `thin` every so many epochs after burn-in. With `out` the run is a folder that can be
    resumed. `source` is how to load the model again.

    The rest decides how the work is done, not its result: `token_budget` caps the tokens of one
    model call, `resident` the chains of one group, which are on a device at once, `prefetch` the
    proposals of a chain under test at once (0: as many as keep the device busy), and chains advance
    asynchronously where their kernel allows it unless `asynchronous` is false. `trace="kept"`
    leaves out the energies of epochs without samples where they would cost passes; they are then
    not-a-number in the traces. `workers` are processes on this machine or a cluster that share the
    groups.
    """
    workers = workers or Workers()
    kernel = kernel or Metropolis(Raw())
    schedule = schedule or Schedule()
    if chains < 1:
        raise InputError(f"a run has at least one chain, not {chains}.")
    if chains * schedule.epochs > MOST_TRACED:
        raise InputError(
            f"{chains} chains of {schedule.epochs} epochs are more than one run can trace; "
            "ask for fewer, or for several runs."
        )
    if thin < 0:
        raise InputError(f"--thin counts epochs: 0 (only the last) or more, not {thin}.")
    if not checkpoint_every >= 0:
        raise InputError("the time between checkpoints must be 0 seconds or more.")
    if resident is not None and resident < 1:
        raise InputError(f"at least one chain must be resident, not {resident}.")
    if trace not in ("every", "kept"):
        raise InputError(f"energies are traced in 'every' epoch or where 'kept', not '{trace}'.")
    if prefetch < 0:
        raise InputError(f"--prefetch must be 0 (automatic) or more, not {prefetch}.")
    kernel = _fitted(kernel, schedule, model, prefetch, asynchronous)
    CounterRng(seed)  # which refuses what is no seed
    if start not in STARTS:
        raise InputError(f"unknown start '{start}'; use one of {', '.join(STARTS)}.")
    if thin and schedule.burn_in + thin > schedule.epochs:
        raise InputError(
            f"no sample would be kept: {schedule.epochs} epochs with {schedule.burn_in} of "
            f"burn-in never reach --thin {thin}."
        )
    path = None if out is None else Path(out)
    if path is not None:
        RunFolder.check_free(path)
    data = _kernel_data(kernel, alone=path is None and workers.here)
    inputs = inputs_of(model, length, texts, templates, lengths, chains, seed)
    layout = layout_of(model, inputs, chains, seed)
    if inputs.sources is None:  # translations may be short; a block is then all of one
        _check_blocks(kernel, schedule, layout)
    scorer = Scorer(model, token_budget, stop)
    longest = max(map(len, layout.tokens))
    config = RunConfig(
        model=ModelConfig(
            name=model.name,
            fingerprint=model.fingerprint(),
            source=source or ModelSource(model.name),
            precision=model.precision,  # type: ignore[arg-type]
            device=str(model.device),
        ),
        kernel=data,
        schedule=schedule,
        inputs=inputs,
        execution=Execution(
            token_budget=scorer.batcher.budget,
            resident=resident or scorer.resident(longest, prefetch or 1),
            prefetch=prefetch,
            asynchronous=asynchronous,
            trace=trace,  # type: ignore[arg-type]
            threads=workers.threads or 1,
        ),
        chains=chains,
        start=start,  # type: ignore[arg-type]
        thin=thin,
        seed=seed,
    )
    manifest = _manifest(config, model, kernel, layout)
    with new_folder(path) if path is not None else nullcontext():
        store: Store = MemoryStore(manifest) if path is None else RunFolder.create(path, manifest)
        try:
            coordinator = Coordinator(
                manifest, layout, kernel, model, store, listener, checkpoint_every
            )
            _carry_out(coordinator, workers, stop)
        except (ModelError, InputError):
            # A model that fails before the first epoch is over leaves nothing worth resuming.
            if isinstance(store, RunFolder) and not store.traces()["steps"].any():
                store.discard()
            raise
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
    if not checkpoint_every >= 0:
        raise InputError("the time between checkpoints must be 0 seconds or more.")
    with locked(folder.path):
        folder.check_unchanged()
        if Run(folder).finished:
            return Run(folder)
        folder.check_resumable()
        check_trusted(folder.manifest, trust_remote_code)
        model = model or load_model(folder.manifest, device, trust_remote_code, allow_download)
        parts = rebuild(folder.manifest, model, trust_parts, allow_download)
        folder.prepare()
        coordinator = Coordinator(
            folder.manifest, parts.layout, parts.kernel, model, folder, listener, checkpoint_every
        )
        if listener is not None:
            for note in folder.recovered:
                listener.noted(note)
        _carry_out(coordinator, workers, stop)
        damaged = coordinator.cache.damaged
    # Opened again: what was damaged when this one was opened is whole now.
    return Run(RunFolder.open(folder.path), folder.lost or damaged, folder.recovered)


def _carry_out(coordinator: Coordinator, workers: Workers, stop: Callable[[], bool] | None) -> None:
    """Take a run to its end, in this process or by workers."""
    manifest, model, listener = coordinator.manifest, coordinator.model, coordinator.listener
    execution, groups = manifest.config.execution, len(coordinator.groups)
    several = workers.count is None and automatic_count(manifest, model, groups)
    if not workers.here or several:
        if groups < (workers.count or 0) and listener is not None:
            listener.noted(
                f"{manifest.chains} chains are {groups} groups of at most {execution.resident}, "
                "which keep as many workers busy; a smaller --resident makes more of them"
            )
        with pool_for(workers, manifest, model, groups, stop) as pool:
            coordinator.run(pool)
        return
    runner = TaskRunner.of(manifest, coordinator.kernel, model, stop)
    runner.deliver = coordinator.deliver
    if listener is not None:
        runner.watch = listener.moved
    with _threads(execution.threads, model):
        coordinator.run(Local(runner))


@contextmanager
def _threads(count: int, model: MaskedModel) -> Iterator[None]:
    """Compute with so many threads on a CPU, and then with as many as before."""
    before = torch.get_num_threads()
    if model.device.type == "cpu":
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fitted(
    kernel: Kernel, schedule: Schedule, model: MaskedModel, prefetch: int, asynchronous: bool
) -> Kernel:
    """Refuse what a run would ignore; return the kernel as the run will carry it out."""
    each = [kernel_at(kernel, schedule, epoch) for epoch in range(schedule.epochs)]
    runs_asynchronously = asynchronous and any(one.asynchronous for one in each)
    if prefetch and not runs_asynchronously:
        raise InputError(
            "only asynchronous chains are prefetched: drop --prefetch, or what keeps them in "
            "lock-step (--lock-step, --block and the like)."
        )
    if not isinstance(kernel, Metropolis):
        return kernel
    precision = kernel.delayed.first_stage
    if precision is not None and precision == model.precision:
        raise InputError(
            f"the first stage would be in {model.precision} like the last: drop --first-stage."
        )
    if runs_asynchronously:
        return kernel
    if precision is not None:
        raise InputError(
            "early tests in low precision need asynchronous chains: drop --first-stage, or what "
            "keeps chains in lock-step (--lock-step, --block and the like)."
        )
    if kernel.delayed.nearest is None and type(kernel) is Metropolis:
        return replace(kernel, delayed=DelayedAcceptance(0))
    return kernel


def _kernel_data(kernel: Kernel, alone: bool) -> dict[str, Any]:
    """Return the kernel as plain data; one that cannot be built again must run `alone`."""
    try:
        data: dict[str, Any] = to_data(kernel)
    except InputError:
        if not alone:
            raise
        return {"part": type(kernel).__name__, "unnamed": True}
    return data


def _check_blocks(kernel: Kernel, schedule: Schedule, layout: Layout) -> None:
    """Refuse blocks that would not fit into the shortest sequence."""
    first = kernel_at(kernel, replace(schedule, force_accept=0), 0)
    shortest = min(sum(free) for free in layout.free)
    block = max((_sweep(move).block for move in moves_of(first) if _sweep(move)), default=1)  # type: ignore[union-attr]
    if block > shortest:
        raise InputError(
            f"a block of {block} positions does not fit into the shortest sequence, which "
            f"has {shortest} free; use a smaller --block."
        )


def _sweep(move: object) -> Sweep | None:
    positions = move.positions if isinstance(move, Site) else None
    return positions if isinstance(positions, Sweep) else None


def _manifest(config: RunConfig, model: MaskedModel, kernel: Kernel, layout: Layout) -> Manifest:
    invariant, notes = leaves_invariant(kernel, config.schedule)
    if model.caution:
        notes.append(model.caution)
    energy_models = {} if kernel.energy is None else kernel.energy.models()
    sweeps = [sweep for sweep in map(_sweep, moves_of(kernel)) if sweep is not None]
    lengths = [len(tokens) for tokens in layout.tokens]
    return Manifest(
        config=config,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        signature=signature(config, kernel, energy_models),
        kernel=kernel_name(kernel),
        energy=None if kernel.energy is None else str(kernel.energy),
        order=sweeps[0].order if len(sweeps) == 1 else None,
        block=sweeps[0].block if len(sweeps) == 1 else None,
        leaves_invariant=invariant,
        notes=tuple(notes),
        versions=versions(),
        energy_models=energy_models,
        width=max(lengths),
        shortest=min(lengths),
    )


def leaves_invariant(kernel: Kernel, schedule: Schedule) -> tuple[bool, list[str]]:
    """Say whether the kept epochs leave one target invariant, and why not or under what limits."""
    notes = []
    invariant = kernel.leaves_invariant
    if not invariant:
        notes.append(
            f"{kernel_name(kernel)} leaves no target invariant: its samples belong to neither "
            "energy"
        )
    elif not schedule.fixed_target():
        invariant = False
        notes.append(
            "the target temperature still moves, or acceptance is still forced, after burn-in: "
            "there is no fixed target"
        )
    if schedule.block is not None and schedule.block.settled_at() > schedule.burn_in:
        notes.append(
            "the block size still moves after burn-in: the target is unchanged, the mixing is not"
        )
    if kernel.leaves_invariant and not kernel.reaches_everything:
        notes.append(
            "some sequences can never be proposed; where a proposal is truncated, a small epsilon "
            "makes the chain ergodic again"
        )
    return invariant, notes
