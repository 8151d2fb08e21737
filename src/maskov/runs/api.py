"""Start a run, or go on with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from maskov.energies import Raw
from maskov.errors import InputError, ModelError
from maskov.execution.scorer import Engine
from maskov.kernels import Delayed, Kernel, Metropolis, Sweep
from maskov.models import MaskedModel
from maskov.random import CounterDraws
from maskov.runs.coordinator import Driver
from maskov.runs.describe import (
    describe_kernel,
    describe_schedule,
    kernel_at,
    leaves_invariant,
)
from maskov.runs.folder import RunFolder
from maskov.runs.inputs import layout_of, origin_of
from maskov.runs.lock import locked, new_folder
from maskov.runs.loop import Listener, Loop
from maskov.runs.manifest import MOST_TRACED
from maskov.runs.rebuild import check_trusted, load_model, rebuild
from maskov.runs.result import Run
from maskov.runs.signature import signature, versions
from maskov.runs.store import MemoryStore, Store
from maskov.schedules import Schedule
from maskov.starts import STARTS, Layout
from maskov.workers import Workers
from maskov.workers.choice import crew_for
from maskov.workers.local import Here


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
    budget: int | None = None,
    resident: int | None = None,
    lanes: int = 0,
    asynchronous: bool = True,
    trace: str = "every",
    checkpoint_seconds: float = 60.0,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    source: dict[str, Any] | None = None,
    workers: Workers | None = None,
) -> Run:
    """Draw samples: many chains, each moved by `kernel` as `schedule` says.

    Chains have `length` tokens (or a length drawn from a range), or start at given `texts`, or
    fill the blanks of `templates`, `chains` to each. Those of a conditional model are translations
    of its sources, `chains` to each, of the likeliest length, of the likeliest few, or of a length
    each draws (`lengths`: best, top, drawn). The last sequence of each chain is kept, or
    with `thin` every so many epochs after burn-in. With `out` the run is a folder that can be
    resumed. `source` is how to load the model again.

    The rest decides how the work is done, not what comes of it: `budget` caps the tokens of one
    model call, `resident` the chains of one group, which are on a device at once, `lanes` the
    proposals of a chain under test at once (0: as many as keep the device busy), and chains go each
    at its own pace where their kernel allows it unless `asynchronous` is false. `trace="kept"`
    leaves out the energies of epochs without samples where they would cost passes; they are then
    not-a-number in the traces.
    `workers` are processes on this machine or a cluster, among whom the groups are shared out.
    """
    workers = workers or Workers()
    kernel = kernel or Metropolis(Raw())
    schedule = schedule or Schedule()
    if chains < 1:
        raise InputError(f"a run has at least one chain, not {chains}.")
    if thin < 0:
        raise InputError(f"--thin counts epochs: 0 (only the last) or more, not {thin}.")
    if not checkpoint_seconds >= 0:
        raise InputError("the time between checkpoints must be 0 seconds or more.")
    if chains * schedule.epochs > MOST_TRACED:
        raise InputError(
            f"{chains} chains of {schedule.epochs} epochs are more than one run can trace; "
            "ask for fewer, or for several runs."
        )
    if resident is not None and resident < 1:
        raise InputError(f"at least one chain must be resident, not {resident}.")
    if trace not in ("every", "kept"):
        raise InputError(f"energies are traced in 'every' epoch or where 'kept', not '{trace}'.")
    if lanes < 0:
        raise InputError(f"--prefetch must be 0 (found by itself) or more, not {lanes}.")
    kernel = _fitted(kernel, schedule, model, lanes, asynchronous)
    CounterDraws(seed)  # which refuses what is no seed
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
    origin = origin_of(model, length, texts, templates, lengths, chains, seed)
    layout = layout_of(model, origin, chains, seed)
    if "sources" not in origin:  # translations may be short; a block is then all of one
        _check_blocks(kernel, schedule, layout)
    engine = Engine(model, budget, stop)
    manifest = _manifest(model, kernel, schedule, origin, layout, engine, source)
    manifest |= {"start": start, "chains_each": chains, "seed": seed, "thin": thin}
    manifest |= {
        "resident": resident or engine.resident(max(map(len, layout.tokens)), lanes or 1),
        "shortest": min(map(len, layout.tokens)),
        "threads": workers.threads_for(model.device),
        "lanes": lanes,
        "asynchronous": asynchronous,
        "trace": trace,
    }
    manifest["signature"] = signature(manifest)
    if manifest["kernel"].get("custom") and (path is not None or not workers.here):
        raise InputError(
            "a run folder and other processes can hold built-in kernels, proposals and positions "
            "only, since they must be able to build them again; run this one without `out` and "
            "`workers`."
        )
    with new_folder(path) if path is not None else nullcontext():
        store: Store = MemoryStore(manifest) if path is None else RunFolder.create(path, manifest)
        try:
            driver = Driver(manifest, layout, kernel, model, store, listener, checkpoint_seconds)
            _carry_out(driver, workers, stop)
        except (ModelError, InputError):
            # A model that fails before the first epoch is over leaves nothing worth resuming.
            if isinstance(store, RunFolder) and not store.traces()["steps"].any():
                store.discard()
            raise
    return Run(manifest, store)


def resume(
    path: str | Path,
    model: MaskedModel | None = None,
    device: str | None = None,
    checkpoint_seconds: float = 60.0,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    workers: Workers | None = None,
    trust_remote_code: bool = False,
) -> Run:
    """Go on with a run folder from its newest whole checkpoints, to the same bytes.

    It goes on where it began, on a CPU or a GPU, unless another `device` is named; `workers` may be
    others than those it began with. Code that comes with a model is run only if it is trusted
    here: a manifest may be anybody's.
    """
    folder = RunFolder.open(Path(path))
    manifest = folder.manifest
    workers = workers or Workers()
    if workers.threads is not None:
        raise InputError("a run goes on with the threads it began with: drop `threads`.")
    if not checkpoint_seconds >= 0:
        raise InputError("the time between checkpoints must be 0 seconds or more.")
    with locked(folder.path):
        if Run(manifest, folder).finished:
            return Run(manifest, folder)
        folder.check_resumable()
        check_trusted(manifest, trust_remote_code)
        model = model or load_model(manifest, device, trust_remote_code)
        parts = rebuild(manifest, model)
        driver = Driver(
            manifest, parts.layout, parts.kernel, model, folder, listener, checkpoint_seconds
        )
        _carry_out(driver, workers, stop)
        damaged = driver.shelf.damaged
    return Run(manifest, folder, [folder.path / "samples.jsonl"] if folder.cut_short else damaged)


def _carry_out(driver: Driver, workers: Workers, stop: Callable[[], bool] | None) -> None:
    """Take a run to its end, in this process or by a crew of others."""
    manifest, model, listener = driver.manifest, driver.model, driver.listener
    if not workers.here:
        if len(driver.groups) < workers.count and listener is not None:
            listener.noted(
                f"{manifest['chains']} chains are {len(driver.groups)} groups of at most "
                f"{manifest['resident']}, which keep as many workers busy; a smaller --resident "
                "makes more of them"
            )
        with crew_for(workers, manifest, model, len(driver.groups), stop) as crew:
            driver.run(crew)
        return
    loop = Loop.of(manifest, driver.kernel, model, stop)
    loop.deliver = driver.deliver
    if listener is not None:
        loop.watch = listener.moved
    with _threads(manifest["threads"], model):
        driver.run(Here(loop))


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
    kernel: Kernel, schedule: Schedule, model: MaskedModel, lanes: int, asynchronous: bool
) -> Kernel:
    """Refuse what a run would ignore; return the kernel as the run will carry it out."""
    each = [kernel_at(kernel, schedule, epoch) for epoch in range(schedule.epochs)]
    flies = asynchronous and any(isinstance(one, Metropolis) and one.flows for one in each)
    if lanes and not flies:
        raise InputError(
            "only chains that go at their own pace are prefetched: drop --prefetch, or what keeps "
            "them in step (--lock-step, --block and the like)."
        )
    if type(kernel) is not Metropolis or flies:
        delayed = kernel.delayed if isinstance(kernel, Metropolis) else Delayed(0)
        if delayed.precision is not None and delayed.precision == model.precision:
            raise InputError(
                f"the first stage would be in {model.precision} like the last: drop --first-stage."
            )
        return kernel
    if kernel.delayed.asked_for:
        raise InputError("delayed acceptance needs asynchronous chains: drop --lock-step.")
    return replace(kernel, delayed=Delayed(0))


def _check_blocks(kernel: Kernel, schedule: Schedule, layout: Layout) -> None:
    """Refuse blocks that would not fit into the shortest sequence."""
    first = kernel_at(kernel, replace(schedule, forced_epochs=0), 0).positions
    shortest = min(sum(free) for free in layout.free)
    if isinstance(first, Sweep) and first.block > shortest:
        raise InputError(
            f"a block of {first.block} positions does not fit into the shortest sequence, which "
            f"has {shortest} free; use a smaller --block."
        )


def _manifest(
    model: MaskedModel,
    kernel: Kernel,
    schedule: Schedule,
    origin: dict[str, Any],
    layout: Layout,
    engine: Engine,
    source: dict[str, Any] | None,
) -> dict[str, Any]:
    invariant, notes = leaves_invariant(kernel, schedule)
    if model.caution:
        notes.append(model.caution)
    return {
        "format": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "signature": "",
        "model": {
            "name": model.name,
            "fingerprint": model.fingerprint(),
            "source": source or {"name": model.name},
            "precision": model.precision,
            "device": str(model.device),
        },
        "causal_models": kernel.energy.models() if isinstance(kernel, Metropolis) else {},
        "kernel": describe_kernel(kernel),
        "schedule": describe_schedule(schedule),
        "origin": origin,
        "chains": len(layout.tokens),
        "width": max(map(len, layout.tokens)),
        "budget": engine.batcher.budget,
        "leaves_invariant": invariant,
        "notes": notes,
        "versions": versions(),
    }
