"""What discarded chains find out before a run begins: its epochs, lengths and ladder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from maskov.errors import InputError
from maskov.execution.loop import kernel_at
from maskov.kernels import Exchange, Kernel
from maskov.kernels.base import BurnIn
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng, Rng
from maskov.runs.store import Store
from maskov.runs.task_runner import Listener
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.tune import cautions, epochs_for, find_ladder, tune, tuned

# Passes of a step, roughly.
_PASSES = 3


def schedule_for_passes(
    passes: int,
    kernel: Kernel,
    schedule: Schedule,
    prior: str,
    layout: Layout,
    scorer: Scorer,
    rng: Rng,
    automatic_burn_in: bool = False,
) -> tuple[Schedule, Kernel]:
    """Return the schedule with as many epochs as so many masked passes of a chain pay for.

    `kernel` has the energy of burn-in, if there is one, and is returned with the burn-in of that
    schedule. An `automatic_burn_in` has half of the epochs, or what the schedule says if that is
    less.
    """
    measured = kernel

    def epochs() -> int:
        return epochs_for(passes, measured, schedule, layout, scorer, rng)

    with threads(1, scorer.model):
        # What the run will choose; an epoch costs about so many passes.
        about = max(passes // (_PASSES * layout.mean), schedule.burn_in + 1, schedule.force_accept)
        found = tune(kernel, replace(schedule, epochs=about), prior, layout, scorer, rng)
        measured = tuned(kernel, found)
        paid = epochs()
        while automatic_burn_in and schedule.burn_in > paid // 2:
            first = schedule.burn_in_energy if paid > 1 else None
            schedule = replace(schedule, burn_in=paid // 2, burn_in_energy=first)
            measured = _with_burn_in(measured, schedule)
            paid = epochs()
    scorer.check()
    if paid <= schedule.burn_in:
        raise InputError(
            f"{passes} passes of a chain are about {paid} epochs, all of them burn-in: ask for "
            "more --passes or less --burn-in."
        )
    schedule = replace(schedule, epochs=paid, force_accept=min(schedule.force_accept, paid))
    return schedule, _with_burn_in(kernel, schedule)


def _with_burn_in(kernel: Kernel, schedule: Schedule) -> Kernel:
    if not isinstance(kernel, BurnIn):
        return kernel
    if schedule.burn_in_energy is None:
        return kernel.kernel
    return replace(kernel, epochs=schedule.burn_in)


def tuned_kernel(
    store: Store, layout: Layout, kernel: Kernel, scorer: Scorer, listener: Listener | None
) -> Kernel:
    """Return the kernel as the run will use it; what it leaves open is chosen now, once."""
    manifest = store.manifest
    if manifest.tuning is None:
        rng = CounterRng(manifest.config.seed)
        with threads(manifest.config.execution.threads, scorer.model):
            config = manifest.config
            found = tune(kernel, config.schedule, config.length_prior, layout, scorer, rng)
        notes = cautions(found)
        store.note(tuning=found, notes=(*manifest.notes, *notes))
        if listener is not None:
            for note in notes:
                listener.noted(note)
    kernel = tuned(kernel, store.manifest.tuning)
    return _with_ladder(kernel, store, layout, scorer, listener)


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
    with threads(config.execution.threads, scorer.model):
        ladder = find_ladder(settled, layout, scorer, CounterRng(config.seed))
    store.note(ladder=ladder)
    if listener is not None:
        listener.noted(f"ladder of inverse temperatures: {', '.join(f'{b:g}' for b in ladder)}")
    return replace(kernel, ladder=ladder)


@contextmanager
def threads(count: int, model: MaskedModel) -> Iterator[None]:
    """Compute with so many threads on a CPU, and then with as many as before."""
    before = torch.get_num_threads()
    if model.device.type == "cpu":
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
