"""Before a run begins: refuse what cannot be run, and let discarded chains find out the rest.

Options that would be ignored are refused, too. Discarded chains find the epochs and the lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch

from maskov.config import MOST_TRACED, Inputs, Schedule
from maskov.energies.counting import (
    LengthPrior,
    PredictedLength,
    no_length_predictor,
    parse_table,
)
from maskov.energies.other_models import AutoregressiveTranslation, no_sources
from maskov.errors import InputError, refuse
from maskov.kernels import Kernel
from maskov.kernels.base import BurnIn, kernel_at
from maskov.models import MaskedModel
from maskov.models.conditional import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng, Rng
from maskov.runs.coordinator import Listener
from maskov.runs.manifest import leaves_invariant, resizes, sweeps_of
from maskov.runs.store import Store
from maskov.starts import Layout
from maskov.tuning.tune import cautions, epochs_for, tune, tuned, weighed

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
    store: Store, layout: Layout, kernel: Kernel, scorer: Scorer, listener: Listener
) -> Kernel:
    """Return the kernel as the run will use it; what it leaves open is chosen now, once."""
    config, schedule = store.manifest.config, store.manifest.schedule
    rng = CounterRng(config.seed)
    with threads(config.execution.threads, scorer.model):
        if store.manifest.tuning is None:
            found = tune(kernel, schedule, config.length_prior, layout, scorer, rng)
            notes = cautions(found)
            store.note(tuning=found, notes=(*store.manifest.notes, *notes))
            for note in notes:
                listener.noted(note)
    return tuned(kernel, store.manifest.tuning)


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


# What is refused.


def check_epochs(schedule: Schedule, chains: int, thin: int) -> None:
    """Refuse more epochs than can be traced, and too few to keep a sample."""
    epochs, burn_in = schedule.epochs, schedule.burn_in
    refuse(
        (
            chains * epochs > MOST_TRACED,
            f"{chains} chains of {epochs} epochs are more than one run can trace; ask for fewer, "
            "or for several runs.",
        ),
        (
            thin and burn_in + thin > epochs,
            f"no sample would be kept: {epochs} epochs with {burn_in} of burn-in never reach "
            f"--thin {thin}.",
        ),
    )


def check_kernel(kernel: Kernel, model: MaskedModel) -> None:
    """Refuse energies that the model cannot have, and an order of positions that come and go."""
    if kernel.energy is not None and not isinstance(model, ConditionalModel):
        for _, part in kernel.energy.parts:
            if isinstance(part, PredictedLength):
                raise no_length_predictor(model)
            if isinstance(part, AutoregressiveTranslation):
                raise no_sources(part, model)
    # Where lengths change, every step draws its own order.
    if resizes(kernel) and any(sweep.order != "random" for sweep in sweeps_of(kernel)):
        raise InputError(
            "positions come and go where lengths change, so they have no order: drop it, or "
            "the moves that change the length."
        )


def with_prior(
    kernel: Kernel, prior: str | Mapping[int, float] | None, model: MaskedModel
) -> tuple[Kernel, Literal["none", "flat"]]:
    """Return the kernel with a given table of lengths in its energy, and what is left to find."""
    if not resizes(kernel):
        if prior is not None:
            raise InputError(
                "no move changes the length: drop --length-prior, or add insert-delete to --moves."
            )
        return kernel, "none"
    if isinstance(model, ConditionalModel):
        if prior not in (None, "none"):
            raise InputError(
                "translations have lengths by their sources, which no --length-prior knows: add "
                "predicted_length to the energy instead."
            )
        return kernel, "none"
    if prior in (None, "flat"):
        return kernel, "flat"
    if prior != "none":
        kernel = weighed(kernel, parse_table(prior))
    return kernel, "none"


def check_layout(kernel: Kernel, inputs: Inputs, layout: Layout) -> None:
    """Refuse an energy that has no value for the sequences of a run."""
    parts = [] if kernel.energy is None else [part for _, part in kernel.energy.parts]
    compares = next((str(part) for part in parts if part.compares), None)
    priors = [part for part in parts if isinstance(part, LengthPrior)]
    ends = [(prior.first, prior.first + len(prior.log_weights) - 1) for prior in priors]
    refuse(
        (
            compares is not None and inputs.texts is None,
            f"the energy '{compares}' compares with the text that a chain started from: give texts "
            "to start from (--start-text).",
        ),
        *(
            (
                layout.shortest < first or layout.width > last,
                f"the length prior has weights for {first} to {last} tokens; chains may have "
                f"{layout.shortest} to {layout.width}.",
            )
            for first, last in ends
        ),
    )


def check_schedule(
    kernel: Kernel,
    schedule: Schedule,
    inputs: Inputs,
    layout: Layout,
    thin: int,
    trace: str,
    until: bool,
) -> None:
    """Refuse blocks that do not fit, and a run `until` convergence that could never be found."""
    first = kernel_at(kernel, replace(schedule, force_accept=0), 0)
    block = max((sweep.block for sweep in sweeps_of(first)), default=1)
    shortest = min(sum(free) for free in layout.free)
    # Chains of texts that may change everywhere have one target, whatever text they started from.
    compares = kernel.energy is not None and kernel.energy.compares
    alike = inputs.texts is not None and inputs.frozen is None and not compares
    lines = [0 if alike else line for line in layout.template]
    lengths = [0 if inputs.sampled else len(tokens) for tokens in layout.tokens]
    targets = Counter(zip(lines, lengths, strict=True))
    refuse(
        (
            # Translations may be short; a block is then all of one.
            inputs.sources is None and block > shortest,
            f"a block of {block} positions does not fit into the shortest sequence, which has "
            f"{shortest} free; use a smaller one: site(block=2).",
        ),
        (
            until and not leaves_invariant(kernel, schedule)[0],
            "--until converged needs a fixed target: a kernel that has one, and --burn-in that "
            "covers a falling --target-temperature and --force-accept.",
        ),
        (
            until and thin and not schedule.burn_in,
            "--thin with --until converged needs --burn-in: samples are written as they are drawn, "
            "so it must be known which epochs count.",
        ),
        (
            until and trace != "every",
            "--until converged needs the energies of every epoch: trace='every'.",
        ),
        (
            until and max(targets.values()) == 1,
            "--until converged compares chains of the same length and template: ask for more "
            "--chains, or for one --length.",
        ),
    )
