"""Find the ladder of temperatures of replica exchange by chains that are discarded.

Pilot chains start from masks that are filled at random, and have random numbers of their own. So
the ladder cannot depend on what the run keeps, and it is fixed before the first kept epoch.

Where the energies of two neighbours are about normal with one variance, they swap with probability
erfc(c·(β_i − β_{i+1})). Each round measures the swap rate of every pair, and moves its step of the
ladder to where the rate would by this law be the one aimed at.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from maskov.errors import InputError
from maskov.execution.loop import whole_epoch
from maskov.kernels.exchange import Exchange
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.starts import Layout, fill
from maskov.types import Chains, Float, Tensor

# The numbers of pilot chains begin here; those of a run, and of their replicas, are smaller.
FIRST_PILOT = 2**31
# The swap rate to aim at; replicas travel well at 0.2 to 0.5.
AIM = 0.35
_PILOTS, _ROUNDS, _EPOCHS = 4, 4, 3
# The first guess of β_{i+1}/β_i, and the bounds of log(β_i/β_{i+1}).
_RATIO, _LEAST, _MOST = 0.85, 0.002, 1.0
# One round changes no step by more than this factor, and believes no rate beyond these.
_FACTOR, _BELIEVED = 2.5, (0.01, 0.98)
_DIGITS = 4


def pilot_chains(model: MaskedModel, layout: Layout, width: int) -> Chains:
    """Return a few chains of a run's kind, evenly chosen, with every free position masked."""
    count = len(layout.tokens)
    number = min(_PILOTS, count)
    rows = [count * row // number for row in range(number)]
    chosen = Layout(
        [layout.tokens[row] for row in rows],
        [layout.free[row] for row in rows],
        [layout.template[row] for row in rows],
    )
    # A run of few chains has as many pilots as one of many.
    again = torch.arange(_PILOTS) % number
    chains = chosen.chains(model, range(number), width).rows(again)
    return replace(
        chains,
        chain=torch.arange(_PILOTS) + FIRST_PILOT,
        tokens=chains.tokens.masked_fill(chains.free, model.mask_id),
    ).to(model.device)


def find_ladder(kernel: Exchange, pilots: Chains, scorer: Scorer, rng: Rng) -> tuple[float, ...]:
    """Return inverse temperatures, from 1 downwards, at which neighbours swap at a good rate."""
    steps = torch.full((kernel.replicas - 1,), -math.log(_RATIO), dtype=torch.float64)
    rows = replace(kernel, ladder=_ladder(steps)).replicated(pilots)
    rows = fill(rows, "masked", kernel.conditional, scorer, rng)
    for number in range(_ROUNDS):
        tried = replace(kernel, ladder=_ladder(steps))
        rows = replace(rows, beta=tried.replicated(pilots).beta)
        rates = []
        for epoch in range(number * _EPOCHS, (number + 1) * _EPOCHS):
            rows = whole_epoch(
                replace(tried, epoch=epoch), _begun(tried, rows, scorer), scorer, rng
            )
            rates.append(_swap_rates(tried, rows))
        scorer.check()
        rate = torch.stack(rates).mean(0).clamp(*_BELIEVED)
        change = _distance(torch.tensor(AIM)).log() - _distance(rate).log()
        # Smaller changes towards the end, so that the noise of one round does not decide.
        change = change.clamp(-math.log(_FACTOR), math.log(_FACTOR)) * min(1.0, 2 / (number + 1))
        steps = (steps * change.exp()).clamp(_LEAST, _MOST)
    return _ladder(steps)


def _begun(kernel: Exchange, rows: Chains, scorer: Scorer) -> Chains:
    """Let the kernel score the rows, or say what to do where it cannot."""
    try:
        return kernel.init(rows, scorer)
    except InputError as error:
        raise InputError(
            f"the ladder of temperatures cannot be found from random starts: {error} Give one "
            "with --ladder."
        ) from error


def _swap_rates(kernel: Exchange, rows: Chains) -> Float[Tensor, " pairs"]:
    """Return the mean probability of a swap of each pair of neighbours.

    Replicas are independent under their joint law, so that those of different pilots are compared
    as well as those of one, where they have one target.
    """
    energy = rows.energies[str(kernel.energy)].view(-1, kernel.replicas)
    beta = rows.beta[: kernel.replicas] / kernel.target_temperature
    kind = torch.stack([rows.lengths, rows.source], dim=1)[:: kernel.replicas]
    alike = (kind[:, None] == kind).all(2)
    fall = energy[:, None, :-1] - energy[:, 1:]
    chance = ((beta[:-1] - beta[1:]) * fall).clamp(max=0.0).exp()
    return chance[alike].mean(0).cpu()


def _distance(rate: Tensor) -> Tensor:
    """Return x with erfc(x) = rate."""
    distance: Tensor = torch.special.erfinv(1 - rate.double())
    return distance


def _ladder(steps: Float[Tensor, " pairs"]) -> tuple[float, ...]:
    """Return the ladder whose log β fall by these steps, in a few digits."""
    betas = (-steps.cumsum(0)).exp().tolist()
    return (1.0, *(float(f"{beta:.{_DIGITS}g}") for beta in betas))
