"""Refuse runs that cannot be carried out, or whose options would be ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from maskov.config import MOST_TRACED, Inputs
from maskov.energies.autoregressive import AutoregressiveTranslation, no_sources
from maskov.energies.counting import (
    LengthPrior,
    PredictedLength,
    no_length_predictor,
    parse_table,
)
from maskov.errors import InputError
from maskov.execution.loop import kernel_at
from maskov.kernels import Kernel
from maskov.models import MaskedModel
from maskov.models.conditional.model import ConditionalModel
from maskov.runs.manifest import leaves_invariant
from maskov.runs.signature import resizes, sweeps_of
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.lengths import weighed


def check_epochs(schedule: Schedule, chains: int, thin: int) -> None:
    """Refuse more epochs than can be traced, and too few to keep a sample."""
    if chains * schedule.epochs > MOST_TRACED:
        raise InputError(
            f"{chains} chains of {schedule.epochs} epochs are more than one run can trace; "
            "ask for fewer, or for several runs."
        )
    if thin and schedule.burn_in + thin > schedule.epochs:
        raise InputError(
            f"no sample would be kept: {schedule.epochs} epochs with {schedule.burn_in} of "
            f"burn-in never reach --thin {thin}."
        )


def check_converges(kernel: Kernel, schedule: Schedule, thin: int, trace: str) -> None:
    """Refuse a run that could never be found to have converged."""
    if not leaves_invariant(kernel, schedule)[0]:
        raise InputError(
            "--until converged needs a fixed target: a kernel that has one, and --burn-in that "
            "covers a falling --target-temperature and --force-accept."
        )
    if thin and not schedule.burn_in:
        raise InputError(
            "--thin with --until converged needs --burn-in: samples are written as they are drawn, "
            "so it must be known which epochs count."
        )
    if trace != "every":
        raise InputError("--until converged needs the energies of every epoch: trace='every'.")


def check_references(kernel: Kernel, inputs: Inputs) -> None:
    """Refuse an energy that compares with the text that a chain started from, if there is none."""
    energy = kernel.energy
    if energy is not None and energy.compares and inputs.texts is None:
        name = next(str(part) for _, part in energy.parts if part.compares)
        raise InputError(
            f"the energy '{name}' compares with the text that a chain started from: give texts to "
            "start from (--start-text)."
        )


def check_comparable(kernel: Kernel, inputs: Inputs, layout: Layout) -> None:
    """Refuse a run until convergence in which no two chains have the same target."""
    compares = kernel.energy is not None and kernel.energy.compares
    alike = inputs.texts is not None and inputs.frozen is None and not compares
    if max(Counter(_targets(inputs, layout, alike)).values()) == 1:
        raise InputError(
            "--until converged compares chains of the same length and template: ask for more "
            "--chains, or for one --length."
        )


def _targets(inputs: Inputs, layout: Layout, alike: bool) -> list[tuple[int, int]]:
    """Return the line of the input and the length of each chain; lines may be `alike`."""
    lengths = [0 if inputs.sampled else len(tokens) for tokens in layout.tokens]
    lines = [0] * len(lengths) if alike else layout.template
    return list(zip(lines, lengths, strict=True))


def check_translates(kernel: Kernel, model: MaskedModel) -> None:
    """Refuse energies of translations, if the model does not translate."""
    if kernel.energy is None or isinstance(model, ConditionalModel):
        return
    for _, part in kernel.energy.parts:
        if isinstance(part, PredictedLength):
            raise no_length_predictor(model)
        if isinstance(part, AutoregressiveTranslation):
            raise no_sources(part, model)


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


def check_prior(kernel: Kernel, layout: Layout) -> None:
    """Refuse weights that leave out a length which chains may have."""
    for _, part in kernel.energy.parts if kernel.energy is not None else ():
        if isinstance(part, LengthPrior):
            last = part.first + len(part.log_weights) - 1
            if layout.shortest < part.first or layout.width > last:
                raise InputError(
                    f"the length prior has weights for {part.first} to {last} tokens; chains may "
                    f"have {layout.shortest} to {layout.width}."
                )


def check_order(kernel: Kernel) -> None:
    """Refuse an order of positions where lengths change: every step then draws its own."""
    if resizes(kernel) and any(sweep.order != "random" for sweep in sweeps_of(kernel)):
        raise InputError(
            "positions come and go where lengths change, so they have no order: drop it, or "
            "the moves that change the length."
        )


def check_blocks(kernel: Kernel, schedule: Schedule, layout: Layout) -> None:
    """Refuse blocks that would not fit into the shortest sequence."""
    first = kernel_at(kernel, replace(schedule, force_accept=0), 0)
    shortest = min(sum(free) for free in layout.free)
    block = max((sweep.block for sweep in sweeps_of(first)), default=1)
    if block > shortest:
        raise InputError(
            f"a block of {block} positions does not fit into the shortest sequence, which "
            f"has {shortest} free; use a smaller one: site(block=2)."
        )
