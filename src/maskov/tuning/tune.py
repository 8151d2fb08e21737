"""Choose what a run leaves open, before it begins, and put the choice into the kernel."""

from __future__ import annotations

from dataclasses import replace

from maskov.config import RunConfig, Tuning
from maskov.energies.lengths import LengthPrior
from maskov.execution.loop import kernel_at
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.starts import Layout
from maskov.tuning.lengths import flat_weights, weighed
from maskov.tuning.pilot import alone, pilot_chains

# Chains that find weights of lengths, and the fewest epochs in which they do.
_LENGTH_CHAINS, _LENGTH_EPOCHS = 8, 10


def tune(kernel: Kernel, config: RunConfig, layout: Layout, scorer: Scorer, rng: Rng) -> Tuning:
    """Return the weights of lengths that discarded chains find, by as many epochs as burn-in has.

    A run whose length prior is not `flat` leaves nothing open.
    """
    if config.length_prior != "flat":
        return Tuning()
    before, schedule = scorer.passes, config.schedule
    # The kernel of the epochs that are kept.
    last = alone(kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1))
    chains = pilot_chains(layout, _LENGTH_CHAINS, last, scorer, rng, repeat=True)
    prior = flat_weights(last, chains, max(_LENGTH_EPOCHS, schedule.burn_in), scorer, rng)
    scorer.check()
    return Tuning(prior.first, prior.log_weights, scorer.passes - before)


def tuned(kernel: Kernel, tuning: Tuning | None) -> Kernel:
    """Return the kernel with everything that was left open as it was chosen."""
    if tuning is None or not tuning.lengths:
        return kernel
    return weighed(kernel, LengthPrior(tuning.first_length, tuning.lengths))
