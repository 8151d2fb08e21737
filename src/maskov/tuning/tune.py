"""Choose what a kernel leaves open, before a run begins, and put the choice into the kernel."""

from __future__ import annotations

from dataclasses import replace

from maskov.config import RunConfig, Tuning
from maskov.energies.lengths import LengthPrior
from maskov.execution.loop import kernel_at
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.lengths import flat_weights, weighed
from maskov.tuning.pilot import alone, metropolis_parts, pilot_chains
from maskov.tuning.stages import DEFAULT, choose_stages, undecided, with_stages

# Epochs of each pilot chain.
_EPOCHS = 2
# There is a pilot chain for so many epochs of all chains together: it tests in full, so that its
# epochs cost a few times as much, and should cost a few hundredths of the run.
_SHARE = 80
_FEWEST, _MOST = 8, 64
# Chains that find weights of lengths, and the fewest epochs in which they do.
_LENGTH_CHAINS, _LENGTH_EPOCHS = 8, 10


def tune(kernel: Kernel, config: RunConfig, layout: Layout, scorer: Scorer, rng: Rng) -> Tuning:
    """Return what discarded chains choose for a run."""
    before, schedule = scorer.passes, config.schedule
    # The kernel of the epochs that are kept.
    last = alone(kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1))
    found = _stages(last, schedule, layout, scorer, rng)
    if config.length_prior == "flat":
        found = _lengths(tuned(last, found), found, schedule, layout, scorer, rng)
    scorer.check()
    return replace(found, passes=scorer.passes - before)


def _stages(kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng) -> Tuning:
    """Choose early tests; runs too short to pay for a pilot take the default."""
    parts = metropolis_parts(kernel)
    if not any(map(undecided, parts)):
        return Tuning()
    count = len(layout.tokens) * schedule.epochs // _SHARE
    if count < _FEWEST:
        chosen = [DEFAULT if undecided(part) else part.delayed.early for part in parts]
        return Tuning(stages=tuple(chosen), gains=(1.0,) * len(parts))
    chains = pilot_chains(layout, min(count, _MOST), kernel, scorer, rng)
    found = choose_stages(kernel, chains, _EPOCHS, scorer, rng)
    return Tuning(
        stages=tuple(stages for stages, _ in found),
        gains=tuple(round(gain, 3) for _, gain in found),
    )


def _lengths(
    kernel: Kernel, found: Tuning, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> Tuning:
    """Find weights of lengths, by as many epochs as burn-in has."""
    chains = pilot_chains(layout, _LENGTH_CHAINS, kernel, scorer, rng, repeat=True)
    epochs = max(_LENGTH_EPOCHS, schedule.burn_in)
    prior = flat_weights(kernel, chains, epochs, scorer, rng)
    return replace(found, first_length=prior.first, lengths=prior.log_weights)


def tuned(kernel: Kernel, tuning: Tuning | None) -> Kernel:
    """Return the kernel with everything that was left open as it was chosen."""
    if tuning is None:
        return kernel
    if tuning.stages:
        kernel = with_stages(kernel, list(tuning.stages))
    if tuning.lengths:
        kernel = weighed(kernel, LengthPrior(tuning.first_length, tuning.lengths))
    return kernel
