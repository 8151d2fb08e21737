"""Choose what a run leaves open, before it begins, and put the choice into the kernel."""

from __future__ import annotations

import math
from dataclasses import replace

from maskov.config import Tuning
from maskov.energies.lengths import LengthPrior
from maskov.execution.loop import ended, epoch, kernel_at
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.lengths import EVEN, flat_weights, weighed
from maskov.tuning.pilot import alone, from_random_starts, pilot_chains, spans

# Chains that find weights of lengths, and the steps that each may make however short the run is.
_LENGTH_CHAINS, _LENGTH_STEPS = 8, 900


def tune(
    kernel: Kernel, schedule: Schedule, prior: str, layout: Layout, scorer: Scorer, rng: Rng
) -> Tuning:
    """Return the weights of lengths that discarded chains find for a `flat` prior of lengths.

    Another prior leaves nothing open.
    """
    if prior != "flat":
        return Tuning()
    before = scorer.passes
    # The kernel of the epochs that are kept.
    last = alone(kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1))
    found = _lengths(last, schedule, layout, scorer, rng)
    scorer.check()
    return replace(found, passes=scorer.passes - before)


@from_random_starts("weights of lengths", "Give weights with --length-prior, or none.")
def _lengths(
    kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> Tuning:
    """Find weights of lengths; all chains together make at most as many steps as the run."""
    chains = pilot_chains(layout, _LENGTH_CHAINS, kernel, scorer, rng, repeat=True)
    own = spans(layout, _LENGTH_CHAINS, kernel, scorer.model)
    steps = int(kernel.steps(chains).max()) * schedule.epochs * len(layout.tokens)
    most = max(_LENGTH_STEPS, steps // _LENGTH_CHAINS)
    prior, even = flat_weights(kernel, chains, own, most, scorer, rng)
    return Tuning(prior.first, prior.log_weights, round(even, 3))


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
    if tuning is None or not tuning.lengths:
        return kernel
    return weighed(kernel, LengthPrior(tuning.first_length, tuning.lengths))


# Discarded chains, the share of the passes that each of them runs, and the most epochs of that.
_CHAINS, _SHARE, _MOST = 8, 2, 400


@from_random_starts("the epochs of --passes", "Give --epochs.")
def epochs_for(
    passes: int, kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> int:
    """Return the epochs after which the steps of a chain have run about so many masked passes.

    A run that stopped each chain when its passes are spent would look at its states: accepted moves
    cost more. So the epochs are chosen beforehand.

    Discarded chains go through the epochs of the schedule until half of the passes are spent, and
    the kernel no longer changes; the rest is taken to cost what the later half of the epochs since
    then did. The first epochs cost more than later ones, as more proposals pass their tests.
    """
    paid = passes / kernel.replicas
    chains = pilot_chains(layout, _CHAINS, kernel, scorer, rng, repeat=True)
    settled, spent = _settled(schedule), list[float]()
    while sum(spent) < paid and len(spent) < settled + _MOST:
        begun = sum(spent[:settled])
        if len(spent) > settled + 1 and sum(spent) - begun >= (paid - begun) / _SHARE:
            break
        least = max(len(spent), schedule.burn_in, schedule.force_accept) + 1
        now = alone(kernel_at(kernel, replace(schedule, epochs=least), len(spent)))
        cost = 0.0
        for after, info in epoch(now, chains, scorer, rng):
            chains = after
            cost += float(info.passes.sum()) / _CHAINS
        chains = ended(chains)
        spent.append(cost)
    over = sum(spent) - paid
    if over >= 0:  # without the last epoch, if that is nearer
        return max(1, len(spent) - (over > spent[-1] / 2))
    later = spent[settled + (len(spent) - settled) // 2 :]
    # Epochs that cost nothing would allow endless ones.
    return len(spent) + round(-over / max(sum(later) / len(later), 1.0))


def _settled(schedule: Schedule) -> int:
    """Return the epoch from which on the kernel no longer changes."""
    moving = [one.settled_at() for one in (schedule.target_temperature, schedule.block) if one]
    return math.ceil(max(schedule.burn_in, schedule.force_accept, *moving, 0))
