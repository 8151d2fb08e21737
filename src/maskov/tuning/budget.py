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

# Discarded chains and their epochs, of which the later half is counted: the first cost more.
_CHAINS, _EPOCHS = 8, 4


def epochs_for(
    passes: int, kernel: Kernel, schedule: Schedule, layout: Layout, scorer: Scorer, rng: Rng
) -> int:
    """Return the epochs after which a chain has run about so many masked passes."""
    last = alone(kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1))
    passes = passes // kernel.replicas
    early = [DEFAULT if undecided(part) else part.delayed.early for part in metropolis_parts(last)]
    last = with_stages(last, early)
    chains = pilot_chains(layout, _CHAINS, last, scorer, rng, repeat=True)
    spent = [0.0] * _EPOCHS
    before = scorer.passes
    chains = last.init(chains, scorer)
    first = (scorer.passes - before) / len(chains.chain)
    for number in range(_EPOCHS):
        for after, info in epoch(last, chains, scorer, rng):
            chains = after
            spent[number] += float(info.passes.sum()) / len(chains.chain)
        chains = ended(chains)
    later = sum(spent[_EPOCHS // 2 :]) / (_EPOCHS - _EPOCHS // 2)
    left = passes - first - sum(spent)
    # One epoch that costs nothing would be worth endless ones.
    return max(1, _EPOCHS + int(left / max(later, 1.0)))
