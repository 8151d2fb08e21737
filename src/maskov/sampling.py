"""Start a run, or go on with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch

from maskov.config import (
    DEFAULT_EPOCHS,
    MOST_TRACED,
    MOST_UNTIL_CONVERGED,
    Execution,
    Inputs,
    Manifest,
    ModelConfig,
    ModelSource,
    RunConfig,
    stopping_rule,
)
from maskov.energies import Energy, as_energy, grouped
from maskov.energies.lengths import LengthPrior, parse_table
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError, ModelError
from maskov.execution.loop import kernel_at
from maskov.kernels import Exchange, Kernel, Metropolis
from maskov.kernels.registry import kernel_name, to_data
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import Resize, Site, Span, Sweep
from maskov.random import CounterRng
from maskov.runs.coordinator import Coordinator
from maskov.runs.folder import RunFolder
from maskov.runs.inputs import inputs_of, layout_of
from maskov.runs.lock import locked, new_folder
from maskov.runs.rebuild import check_trusted, load_model, models_of, rebuild, with_burn_in
from maskov.runs.result import Run
from maskov.runs.signature import moves_of, signature, versions
from maskov.runs.store import MemoryStore, Store
from maskov.runs.task_runner import Listener, TaskRunner
from maskov.schedules import Schedule
from maskov.starts import STARTS, Layout
from maskov.tuning.budget import epochs_for
from maskov.tuning.ladder import find_ladder
from maskov.tuning.lengths import weighed
from maskov.tuning.tune import tune, tuned
from maskov.workers import Workers
from maskov.workers.local import Local
from maskov.workers.pool import automatic_count, pool_for
from maskov.workers.streams import THREADS, Streams

# Sizes of the windows that chains resample by default: single sites, two and three neighbours.
DEFAULT_SPAN = (1, 2, 3)
# Epochs of burn-in, and the groups of positions in which it scores them, unless given: the fewest
# passes to the energy of long runs (results/mixing).
BURN_IN, GROUPS = 8, 4
# Fewer chains than these are not worth a group of their own.
_FEWEST_TAKING_TURNS = 64


def default_kernel(energy: Energy | str = "raw") -> Metropolis:
    """Return the kernel that needed the fewest passes in results/mixing, for an energy."""
    return Metropolis(as_energy(energy), Span(sizes=DEFAULT_SPAN), delayed=DelayedAcceptance(2))


def default_schedule(energy: Energy | str = "raw") -> Schedule:
    """Return the schedule of `default_kernel`: a burn-in with the energy's positions in groups."""
    first = grouped(as_energy(energy), GROUPS)
    return Schedule(
        epochs=DEFAULT_EPOCHS, burn_in=BURN_IN, burn_in_energy=None if first is None else str(first)
    )


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
    length_prior: str | None = None,
    replicas: int = 1,
    ladder: Sequence[float] = (),
    seed: int = 0,
    thin: int = 0,
    passes: int | None = None,
    until: str | None = None,
    effective: int | None = None,
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

    Without a kernel that is `default_kernel`, and without either it begins with the burn-in of
    `default_schedule`.

    Chains have `length` tokens (or a length drawn from a range), or start at given `texts`, or
    fill the blanks of `templates`, `chains` to each. Those of a conditional model are translations
    of its sources, `chains` to each, of the likeliest length, of the likeliest few, or of a length
    each draws (`lengths`: best, top, drawn). With a `Resize` move lengths are sampled: any within
    the range, or from half to twice that of a text, or those of blanks such as [MASK*] and
    [MASK{2,5}]. `length_prior` weighs them: "none" (the law is exp(−E) over all lengths), "flat"
    (the default: weights found by discarded chains so that lengths are visited about evenly), or
    a table of weights such as "8:1,12:4,16:1". The last sequence of each chain is kept, or
    with `thin` every so many epochs after burn-in. With `out` the run is a folder that can be
    resumed. `source` is how to load the model again.

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
    if schedule is None and kernel is None and rule is None and replicas == 1 and not ladder:
        schedule = default_schedule()
    kernel = kernel or default_kernel()
    schedule = schedule or Schedule(epochs=DEFAULT_EPOCHS if rule is None else MOST_UNTIL_CONVERGED)
    if replicas != 1 or ladder:
        kernel = Exchange(kernel, tuple(ladder), 0 if replicas == 1 else replicas)
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
    trust = source is not None and source.trust_remote_code
    running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
    _check_execution(kernel, running, schedule, model, prefetch, asynchronous)
    CounterRng(seed)  # which refuses what is no seed
    if start not in STARTS:
        raise InputError(f"unknown start '{start}'; use one of {', '.join(STARTS)}.")
    if thin and schedule.burn_in + thin > schedule.epochs:
        raise InputError(
            f"no sample would be kept: {schedule.epochs} epochs with {schedule.burn_in} of "
            f"burn-in never reach --thin {thin}."
        )
    resizes = any(isinstance(move, Resize) for move in moves_of(kernel))
    kernel, prior = _with_prior(kernel, length_prior, resizes)
    if passes is not None:
        if rule is not None:
            raise InputError("a run ends after --passes or --until converged, not both.")
        schedule = schedule_for_passes(
            model, kernel, schedule, passes, chains=chains, length=length, texts=texts,
            templates=templates, lengths=lengths, seed=seed, token_budget=token_budget,
        )  # fmt: skip
    if rule is not None:
        _check_converges(kernel, schedule, thin, trace)
    path = None if out is None else Path(out)
    if path is not None:
        RunFolder.check_free(path)
    data = _kernel_data(kernel, alone=path is None and workers.here)
    inputs = inputs_of(model, length, texts, templates, lengths, chains, seed, resizes)
    layout = layout_of(model, inputs, chains, seed)
    layout.check(model, kernel.conditional.constraints)
    _check_prior(kernel, layout)
    if inputs.sources is None:  # translations may be short; a block is then all of one
        _check_blocks(kernel, schedule, layout)
    if rule is not None and max(Counter(_targets(inputs, layout)).values()) == 1:
        raise InputError(
            "--until converged compares chains of the same length and template: ask for more "
            "--chains, or for one --length."
        )
    scorer = Scorer(model, token_budget, stop)
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
            resident=resident
            or _resident(scorer, kernel, schedule, layout, prefetch, asynchronous),
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
    manifest = _manifest(config, model, kernel, models_of(running), layout)
    with new_folder(path) if path is not None else nullcontext():
        store: Store = MemoryStore(manifest) if path is None else RunFolder.create(path, manifest)
        try:
            running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
            running = _tuned(store, layout, running, scorer, listener)
            coordinator = Coordinator(layout, running, model, store, listener, checkpoint_every)
            if rule is not None and listener is not None and "tokens" not in store.traced():
                listener.noted(
                    "the run is too large to trace its tokens: energies alone decide when it ends"
                )
            _carry_out(coordinator, workers, stop)
        except (ModelError, InputError):
            # A model that fails before the first epoch is over leaves nothing worth resuming.
            if isinstance(store, RunFolder) and not store.traces()["steps"].any():
                store.discard()
            raise
    return Run(store)


def schedule_for_passes(
    model: MaskedModel,
    kernel: Kernel,
    schedule: Schedule,
    passes: int,
    *,
    chains: int = 8,
    length: int | tuple[int, int] = 20,
    texts: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
    lengths: str = "best",
    seed: int = 0,
    token_budget: int | None = None,
) -> Schedule:
    """Return the schedule with as many epochs as so many masked passes of a chain pay for."""
    if passes < 1:
        raise InputError(f"--passes counts masked passes of a chain: 1 or more, not {passes}.")
    resizes = any(isinstance(move, Resize) for move in moves_of(kernel))
    inputs = inputs_of(model, length, texts, templates, lengths, chains, seed, resizes)
    layout = layout_of(model, inputs, chains, seed)
    layout.check(model, kernel.conditional.constraints)
    scorer = Scorer(model, token_budget)
    with _threads(1, model):
        found = epochs_for(passes, kernel, schedule, layout, scorer, CounterRng(seed))
    scorer.check()
    if found <= schedule.burn_in:
        raise InputError(
            f"{passes} passes of a chain are about {found} epochs, all of them burn-in: ask for "
            "more --passes or less --burn-in."
        )
    return replace(schedule, epochs=found, force_accept=min(schedule.force_accept, found))


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
        scorer = Scorer(model, folder.manifest.config.execution.token_budget, stop)
        kernel = _tuned(folder, parts.layout, parts.kernel, scorer, listener)
        coordinator = Coordinator(parts.layout, kernel, model, folder, listener, checkpoint_every)
        if listener is not None:
            for note in folder.recovered:
                listener.noted(note)
        _carry_out(coordinator, workers, stop)
        damaged = coordinator.cache.damaged
    # Opened again: what was damaged when this one was opened is whole now.
    return Run(RunFolder.open(folder.path), folder.lost or damaged, folder.recovered)


def _tuned(
    store: Store, layout: Layout, kernel: Kernel, scorer: Scorer, listener: Listener | None
) -> Kernel:
    """Return the kernel as the run will use it; what it leaves open is chosen now, once."""
    manifest = store.manifest
    if manifest.tuning is None:
        rng = CounterRng(manifest.config.seed)
        with _threads(manifest.config.execution.threads, scorer.model):
            store.note(tuning=tune(kernel, manifest.config, layout, scorer, rng))
    kernel = tuned(kernel, store.manifest.tuning)
    return _with_ladder(kernel, store, layout, scorer, listener)


def _check_converges(kernel: Kernel, schedule: Schedule, thin: int, trace: str) -> None:
    """Refuse a run that could never be found to have converged."""
    if not leaves_invariant(kernel, schedule)[0]:
        raise InputError(
            "--until converged needs a fixed target: a kernel that has one, and --burn-in that "
            "covers --anneal and --force-accept."
        )
    if thin and not schedule.burn_in:
        raise InputError(
            "--thin with --until converged needs --burn-in: samples are written as they are drawn, "
            "so it must be known which epochs count."
        )
    if trace != "every":
        raise InputError("--until converged needs the energies of every epoch: trace='every'.")


def _targets(inputs: Inputs, layout: Layout) -> list[tuple[int, int]]:
    """Return the line of the input and the length of each chain; texts are only starts."""
    lengths = [0 if inputs.sampled else len(tokens) for tokens in layout.tokens]
    lines = layout.template if inputs.texts is None else [0] * len(lengths)
    return list(zip(lines, lengths, strict=True))


def _with_ladder(
    kernel: Kernel, store: Store, layout: Layout, scorer: Scorer, listener: Listener | None
) -> Kernel:
    """Find the ladder of replicas, if it was not given and not found before; keep it."""
    manifest = store.manifest
    if not isinstance(kernel, Exchange) or kernel.ladder:
        return kernel
    config, schedule = manifest.config, manifest.schedule
    # As the kernel is in the last epoch, when nothing moves any more.
    settled = kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1)
    assert isinstance(settled, Exchange)
    with _threads(config.execution.threads, scorer.model):
        ladder = find_ladder(settled, layout, scorer, CounterRng(config.seed))
    store.note(ladder=ladder)
    if listener is not None:
        listener.noted(f"ladder of inverse temperatures: {', '.join(f'{b:g}' for b in ladder)}")
    return replace(kernel, ladder=ladder)


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
    if groups > 1 and _shares_gpu(coordinator.kernel, manifest, model):
        runners = [TaskRunner.of(manifest, coordinator.kernel, model, stop) for _ in range(THREADS)]
        with Streams(runners) as streams:
            coordinator.run(streams)
        return
    runner = TaskRunner.of(manifest, coordinator.kernel, model, stop)
    runner.deliver = coordinator.deliver
    if listener is not None:
        runner.watch = listener.moved
    with _threads(execution.threads, model):
        coordinator.run(Local(runner))


def _resident(
    scorer: Scorer,
    kernel: Kernel,
    schedule: Schedule,
    layout: Layout,
    prefetch: int,
    asynchronous: bool,
) -> int:
    """Return how many chains make a group; on a GPU two groups in lock-step take turns."""
    most = scorer.resident(layout.width, prefetch or 1)
    moving = kernel_at(kernel, schedule, schedule.epochs - 1)
    chains = len(layout.tokens)
    if scorer.model.device.type != "cuda" or (asynchronous and moving.asynchronous):
        return most
    return min(most, max(_FEWEST_TAKING_TURNS, -(-chains // THREADS)))


def _shares_gpu(kernel: Kernel, manifest: Manifest, model: MaskedModel) -> bool:
    """Whether groups should take turns on one GPU: those in lock-step leave it idle."""
    if model.device.type != "cuda":
        return False
    each = (kernel_at(kernel, manifest.schedule, e) for e in range(manifest.schedule.epochs))
    # Rounds that are recorded fill the device, and must be recorded alone.
    return not (manifest.config.execution.asynchronous and any(one.asynchronous for one in each))


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


def _check_execution(
    kernel: Kernel,
    running: Kernel,
    schedule: Schedule,
    model: MaskedModel,
    prefetch: int,
    asynchronous: bool,
) -> None:
    """Refuse what a run would ignore; `running` is the kernel with the energy of burn-in."""
    each = [kernel_at(running, schedule, epoch) for epoch in range(schedule.epochs)]
    runs_asynchronously = asynchronous and any(one.asynchronous for one in each)
    if prefetch and not runs_asynchronously:
        raise InputError(
            "only asynchronous chains are prefetched: drop --prefetch, or what keeps them in "
            "lock-step (--lock-step, --block and the like)."
        )
    if isinstance(kernel, Exchange):
        _check_execution(kernel.kernel, kernel.kernel, schedule, model, 0, False)
    if not isinstance(kernel, Metropolis):
        return
    precision = kernel.delayed.first_stage
    if precision is not None and precision == model.precision:
        raise InputError(
            f"the first stage would be in {model.precision} like the last: drop --first-stage."
        )
    if precision is not None and not runs_asynchronously:
        raise InputError(
            "early tests in low precision need asynchronous chains: drop --first-stage, or what "
            "keeps chains in lock-step (--lock-step, --block and the like)."
        )


def _with_prior(
    kernel: Kernel, prior: str | None, resizes: bool
) -> tuple[Kernel, Literal["none", "flat"]]:
    """Return the kernel with a given table of lengths in its energy, and what is left to find."""
    if not resizes:
        if prior is not None:
            raise InputError(
                "no move changes the length: drop --length-prior, or add insert-delete to --moves."
            )
        return kernel, "none"
    if prior in (None, "flat"):
        return kernel, "flat"
    if prior != "none":
        kernel = weighed(kernel, parse_table(str(prior)))
    return kernel, "none"


def _check_prior(kernel: Kernel, layout: Layout) -> None:
    """Refuse weights that leave out a length which chains may have."""
    for _, part in kernel.energy.parts if kernel.energy is not None else ():
        if isinstance(part, LengthPrior):
            last = part.first + len(part.log_weights) - 1
            if layout.shortest < part.first or layout.width > last:
                raise InputError(
                    f"the length prior has weights for {part.first} to {last} tokens; chains may "
                    f"have {layout.shortest} to {layout.width}."
                )


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


def _manifest(
    config: RunConfig,
    model: MaskedModel,
    kernel: Kernel,
    energy_models: dict[str, str],
    layout: Layout,
) -> Manifest:
    invariant, notes = leaves_invariant(kernel, config.schedule)
    if model.caution:
        notes.append(model.caution)
    if config.until is not None:
        notes.append(
            "when the run ends is decided by its own diagnostics: every step leaves the target "
            "invariant, the number of epochs depends on the chains"
        )
    sweeps = [sweep for sweep in map(_sweep, moves_of(kernel)) if sweep is not None]
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
        width=layout.width,
        shortest=layout.shortest,
        regions=max(map(len, layout.bounds), default=0),
        replicas=kernel.replicas,
        ladder=(kernel.ladder or None) if isinstance(kernel, Exchange) else None,
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
