"""The one epoch loop: every run, start and replay in lock-step goes through it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from maskov.config import Schedule
from maskov.errors import InputError
from maskov.kernels.base import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.types import Chains, StepInfo


def epoch(
    kernel: Kernel, chains: Chains, scorer: Scorer, rng: Rng
) -> Iterator[tuple[Chains, StepInfo]]:
    """Yield the chains and what happened after each step of an epoch.

    An epoch that was interrupted continues where it stopped. `kernel.end` completes it, and
    `ended` makes chains ready for the next.
    """
    chains = kernel.init(chains, scorer)
    if not bool(chains.epoch_step.any()):
        chains = kernel.begin(chains, rng)
    steps = kernel.steps(chains)
    while True:
        rows = (chains.epoch_step < steps).nonzero().flatten()
        if not rows.numel():
            return
        chains, info = kernel.step(chains, rows, scorer, rng)
        yield chains, info


def ended(chains: Chains) -> Chains:
    """Return chains that have ended their epoch, before the next."""
    return replace(chains, epoch_step=torch.zeros_like(chains.epoch_step))


def whole_epoch(kernel: Kernel, chains: Chains, scorer: Scorer, rng: Rng) -> Chains:
    """Run one epoch and return the chains."""
    for after, _ in epoch(kernel, chains, scorer, rng):
        chains = after
    return ended(kernel.end(chains, rng))


def kernel_at(kernel: Kernel, schedule: Schedule, epoch: int) -> Kernel:
    """Return the kernel as the schedule has it in one epoch."""
    temperature = schedule.target_temperature
    now = kernel.at(
        epoch,
        None if temperature is None else temperature.at(epoch),
        None if schedule.block is None else schedule.block_at(epoch),
    )
    if epoch >= schedule.force_accept:
        return now
    forced = now.forced()
    if forced is None:
        raise InputError(f"'{kernel}' cannot accept everything: drop --force-accept.")
    return forced
