"""How many epochs a number of masked passes pays for.

A run that stopped each chain when its passes are spent would look at its states: accepted moves
cost more. So the epochs are chosen beforehand, by what epochs of discarded chains cost.
"""

from __future__ import annotations

from dataclasses import replace

from maskov.execution.loop import ended, epoch, kernel_at
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout
from maskov.tuning.pilot import alone, metropolis_parts, pilot_chains
from maskov.tuning.stages import DEFAULT, undecided, with_stages

# Discarded chains, the share of the passes that each of them runs, and the most epochs of that.
_CHAINS, _SHARE, _MOST = 4, 4, 400


def epochs_for(
    passes: int, kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> int:
    """Return the epochs after which a chain has run about so many masked passes.

    The first epochs cost more than later ones, as more proposals pass their tests. So a few chains
    run a quarter of the passes; the rest is taken to cost what the last half of that did. Together
    they cost as much as one chain of the run.
    """
    last = alone(kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1))
    passes = passes // kernel.replicas
    early = [DEFAULT if undecided(part) else part.delayed.early for part in metropolis_parts(last)]
    last = with_stages(last, early)
    chains = pilot_chains(layout, _CHAINS, last, scorer, rng, repeat=True)
    before = scorer.passes
    chains = last.init(chains, scorer)
    spent = [(scorer.passes - before) / _CHAINS]
    while len(spent) < 3 or (sum(spent) < passes / _SHARE and len(spent) < _MOST):
        spent.append(0.0)
        for after, info in epoch(last, chains, scorer, rng):
            chains = after
            spent[-1] += float(info.passes.sum()) / _CHAINS
        chains = ended(chains)
    later = spent[1 + len(spent) // 2 :]
    left = passes - sum(spent)
    # Epochs that cost nothing would be worth endless ones.
    return max(1, len(spent) - 1 + int(left / max(sum(later) / len(later), 1.0)))
