"""Choose what a kernel leaves open, before a run begins, and put the choice into the kernel."""

from __future__ import annotations

from dataclasses import replace

from maskov.config import Tuning
from maskov.energies.lengths import LengthPrior
from maskov.errors import InputError
from maskov.execution.loop import kernel_at
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.lengths import EVEN, flat_weights, weighed
from maskov.tuning.pilot import (
    alone,
    from_random_starts,
    metropolis_parts,
    pilot_chains,
    spans,
)
from maskov.tuning.stages import DEFAULT, choose_stages, undecided, with_stages

# Epochs of each pilot chain.
_EPOCHS = 2
# There is a pilot chain for so many epochs of all chains together: it tests in full, so that its
# epochs cost a few times as much, and should cost a few hundredths of the run.
_SHARE = 80
_FEWEST, _MOST = 8, 64
# Chains that find weights of lengths, and the steps that each may make however short the run is.
_LENGTH_CHAINS, _LENGTH_STEPS = 8, 900


def tune(
    kernel: Kernel, schedule: Schedule, prior: str, layout: Layout, scorer: Scorer, rng: Rng
) -> Tuning:
    """Return what discarded chains choose for a run, with a `flat` prior of lengths or none."""
    before = scorer.passes
    # The kernel of the epochs that are kept.
    last = alone(kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1))
    found = _stages(last, schedule, layout, scorer, rng)
    if prior == "flat":
        found = _lengths(tuned(last, found), found, schedule, layout, scorer, rng)
    scorer.check()
    return replace(found, passes=scorer.passes - before)


def _stages(kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng) -> Tuning:
    """Choose early tests; runs too short to pay for a pilot take the default.

    So do runs whose discarded chains cannot begin.
    """
    parts = metropolis_parts(kernel)
    if not any(map(undecided, parts)):
        return Tuning()
    count = len(layout.tokens) * schedule.epochs // _SHARE
    chosen = [DEFAULT if undecided(part) else part.delayed.early for part in parts]
    default = Tuning(stages=tuple(chosen), gains=(1.0,) * len(parts))
    if count < _FEWEST:
        return default
    try:
        chains = pilot_chains(layout, min(count, _MOST), kernel, scorer, rng)
        found = choose_stages(kernel, chains, _EPOCHS, scorer, rng)
    except InputError:  # no sequence to begin at was found
        return default
    return Tuning(
        stages=tuple(stages for stages, _ in found),
        gains=tuple(round(gain, 3) for _, gain in found),
    )


@from_random_starts("weights of lengths", "Give weights with --length-prior, or none.")
def _lengths(
    kernel: Kernel, found: Tuning, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> Tuning:
    """Find weights of lengths; all chains together make at most as many steps as the run."""
    chains = pilot_chains(layout, _LENGTH_CHAINS, kernel, scorer, rng, repeat=True)
    own = spans(layout, _LENGTH_CHAINS, kernel, scorer.model)
    steps = int(kernel.steps(chains).max()) * schedule.epochs * len(layout.tokens)
    most = max(_LENGTH_STEPS, steps // _LENGTH_CHAINS)
    prior, even = flat_weights(kernel, chains, own, most, scorer, rng)
    return replace(
        found, first_length=prior.first, lengths=prior.log_weights, evenness=round(even, 3)
    )


def cautions(tuning: Tuning) -> tuple[str, ...]:
    """Return what a user should know of what was chosen."""
    if not tuning.lengths or tuning.evenness >= EVEN:
        return ()
    worst = f"{1 / tuning.evenness:.1f} times" if tuning.evenness else "infinitely"
    return (
        f"the weights of lengths are not even: some length was visited {worst} more or less often "
        "than it should be by the discarded chains that found them; samples are exact for these "
        "weights (a longer run has longer discarded chains; --length-prior takes weights)",
    )


def tuned(kernel: Kernel, tuning: Tuning | None) -> Kernel:
    """Return the kernel with everything that was left open as it was chosen."""
    if tuning is None:
        return kernel
    if tuning.stages:
        kernel = with_stages(kernel, list(tuning.stages))
    if tuning.lengths:
        kernel = weighed(kernel, LengthPrior(tuning.first_length, tuning.lengths))
    return kernel
