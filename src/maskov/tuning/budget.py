"""How many epochs a number of masked passes pays for.

A run that stopped each chain when its passes are spent would look at its states: accepted moves
cost more. So the epochs are chosen beforehand, by what epochs of discarded chains cost.
"""

from __future__ import annotations

from dataclasses import replace

from maskov.execution.loop import ended, epoch, kernel_at
from maskov.kernels import Kernel
from maskov.kernels.burn_in import BurnIn
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.pilot import alone, pilot_chains

# Discarded chains, the share of the passes that each of them runs, and the most epochs of that.
_CHAINS, _SHARE, _MOST = 4, 4, 400


def epochs_for(
    passes: int, kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> tuple[float, float]:
    """Return the epochs after which a chain has run about so many masked passes.

    The first epochs cost more than later ones, as more proposals pass their tests. So a few chains
    run a quarter of the passes; the rest is taken to cost what the last half of that did. Together
    they cost as much as one chain of the run. The second number is how many more epochs each epoch
    of burn-in leaves over, if it has an energy of its own.
    """
    settled = replace(schedule, force_accept=0)
    last = alone(kernel_at(kernel, settled, schedule.epochs - 1))
    passes = passes // kernel.replicas
    spent = _spent(last, layout, scorer, rng, passes / _SHARE)
    later = spent[1 + len(spent) // 2 :]
    # Epochs that cost nothing would be worth endless ones.
    each = max(sum(later) / len(later), 1.0)
    epochs = max(1.0, len(spent) - 1 + (passes - sum(spent)) / each)
    if not isinstance(kernel, BurnIn):
        return epochs, 0.0
    first = _spent(kernel_at(kernel, settled, 0), layout, scorer, rng, 0)[1:]
    return epochs, 1 - sum(first) / len(first) / each


def _spent(kernel: Kernel, layout: Layout, scorer: Scorer, rng: Rng, passes: float) -> list[float]:
    """Return the passes of a chain for its first energy and for each epoch, of two or more."""
    chains = pilot_chains(layout, _CHAINS, kernel, scorer, rng, repeat=True)
    before = scorer.passes
    chains = kernel.init(chains, scorer)
    spent = [(scorer.passes - before) / _CHAINS]
    while len(spent) < 3 or (sum(spent) < passes and len(spent) < _MOST):
        spent.append(0.0)
        for after, info in epoch(kernel, chains, scorer, rng):
            chains = after
            spent[-1] += float(info.passes.sum()) / _CHAINS
        chains = ended(chains)
    return spent
