"""Find the ladder of temperatures of replica exchange by chains that are discarded.

Pilot chains start from masks that are filled at random, and have random numbers of their own. So
the ladder cannot depend on what the run keeps, and it is fixed before the first kept epoch.

The ladder is geometric: β_{i+1}/β_i is the same for all i. Where the energies of two neighbours are
about normal with one variance, they swap with probability erfc(c·(β_i − β_{i+1})). Each round
measures the swap rate, and moves the ratio to where the rate would by this law be the one aimed at.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from maskov.execution.loop import whole_epoch
from maskov.kernels.exchange import Exchange
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.starts import Layout
from maskov.tuning.pilot import from_random_starts, pilot_chains
from maskov.types import Chains

# The swap rate to aim at; replicas travel well at 0.2 to 0.5.
AIM = 0.35
_PILOTS = 4
# Epochs before the first round, in which energies fall from those of random starts; rounds, and
# their epochs.
_WARM_UP, _ROUNDS, _EPOCHS = 4, 3, 4
# The first guess of β_{i+1}/β_i, and the bounds of log(β_i/β_{i+1}).
_RATIO, _LEAST, _MOST = 0.85, 0.002, 1.0
# One round changes no step by more than this factor, and believes no rate beyond these.
_FACTOR, _BELIEVED = 2.5, (0.01, 0.98)
_DIGITS = 4


@from_random_starts("the ladder of temperatures", "Give one with --ladder.")
def find_ladder(kernel: Exchange, layout: Layout, scorer: Scorer, rng: Rng) -> tuple[float, ...]:
    """Return inverse temperatures, from 1 downwards, at which neighbours swap at a good rate."""
    pilots = pilot_chains(layout, _PILOTS, kernel, scorer, rng, repeat=True)
    step = -math.log(_RATIO)
    rows = replace(kernel, ladder=_ladder(step, kernel.replicas)).replicated(pilots)
    rates: list[float] = []
    for epoch in range(_WARM_UP + _ROUNDS * _EPOCHS):
        now = replace(kernel, ladder=_ladder(step, kernel.replicas), epoch=epoch)
        rows = now.init(replace(rows, beta=now.replicated(pilots).beta), scorer)
        rows = whole_epoch(now, rows, scorer, rng)
        rates.append(_swap_rate(now, rows))
        scorer.check()
        measured = epoch + 1 - _WARM_UP
        if measured > 0 and measured % _EPOCHS == 0:
            change = _distance(AIM) / _distance(sum(rates[-_EPOCHS:]) / _EPOCHS)
            change = min(max(change, 1 / _FACTOR), _FACTOR)
            # Smaller changes towards the end, so that the noise of one round does not decide.
            step = min(max(step * change ** min(1.0, 2 * _EPOCHS / measured), _LEAST), _MOST)
    return _ladder(step, kernel.replicas)


def _swap_rate(kernel: Exchange, rows: Chains) -> float:
    """Return the mean probability of a swap, over all pairs of neighbours.

    Replicas are independent under their joint law, so that those of different pilots are compared
    as well as those of one, where they have one target.
    """
    assert rows.energy is not None
    energy = rows.energy.view(-1, kernel.replicas)
    beta = rows.beta[: kernel.replicas] / kernel.target_temperature
    kind = torch.stack([rows.lengths, rows.source], dim=1)[:: kernel.replicas]
    if rows.resizable:
        kind = kind[:, 1:]
    alike = (kind[:, None] == kind).all(2)
    fall = energy[:, None, :-1] - energy[:, 1:]
    chance = ((beta[:-1] - beta[1:]) * fall).clamp(max=0.0).exp()
    return float(chance[alike].mean())


def _distance(rate: float) -> float:
    """Return x with erfc(x) = rate; rates near 0 and 1 are not believed."""
    least, most = _BELIEVED
    believed = torch.tensor(min(max(rate, least), most), dtype=torch.float64)
    return float(torch.special.erfinv(1 - believed))


def _ladder(step: float, replicas: int) -> tuple[float, ...]:
    """Return the ladder whose log β falls by `step`, in a few digits."""
    return tuple(float(f"{math.exp(-step * rung):.{_DIGITS}g}") for rung in range(replicas))
