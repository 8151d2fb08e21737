"""How many epochs a number of masked passes pays for.

A run that stopped each chain when its passes are spent would look at its states: accepted moves
cost more. So the epochs are chosen beforehand, by what epochs of discarded chains cost.
"""

from __future__ import annotations

import math
from dataclasses import replace

from maskov.execution.loop import ended, epoch, kernel_at
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.pilot import alone, from_random_starts, pilot_chains

# Discarded chains, the share of the passes that each of them runs, and the most epochs of that.
_CHAINS, _SHARE, _MOST = 8, 2, 400


@from_random_starts("the epochs of --passes", "Give --epochs.")
def epochs_for(
    passes: int, kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> int:
    """Return the epochs after which the steps of a chain have run about so many masked passes.

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
