"""What a run leaves open, chosen by chains that are discarded: its epochs, lengths and ladder.

A kernel chosen by looking at a chain depends on its state, and a chain that continues with such a
kernel leaves no target invariant, however it was started. So everything here is chosen by separate
chains: they begin at blanks filled at random, never at the user's texts; they share no random
numbers with other chains; and the choice is made, recorded and frozen before the first step of a
run.

The ladder of temperatures is geometric: β_{i+1}/β_i is the same for all i. Where the energies of
two neighbours are about normal with one variance, they swap with probability
erfc(c·(β_i − β_{i+1})). Each round measures the swap rate, and moves the ratio to where the rate
would by this law be the one aimed at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from maskov.config import Tuning
from maskov.energies.counting import LengthPrior
from maskov.errors import InputError
from maskov.execution.loop import ended, epoch, kernel_at, whole_epoch
from maskov.kernels import Exchange, Kernel
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.schedules import Schedule
from maskov.starts import Layout, fill
from maskov.tuning.lengths import EVEN, flat_weights, weighed
from maskov.types import Chains, Int, Tensor

# Their random numbers are those of chains from here on, which no run has.
FIRST_CHAIN = 2**31


def pilot_chains(layout: Layout, count: int, kernel: Kernel, scorer: Scorer, rng: Rng) -> Chains:
    """Return chains laid out as some of a run's, whatever is free filled at random.

    Where lengths may change they are spread over the bounds: that of a text is a part of its state.
    Constraints are met by the way blanks are filled.
    """
    model = scorer.model
    blank = _blanks(layout, count, kernel, model)
    chains = blank.chains(model, range(count), layout.width)
    chains = replace(chains, chain=chains.chain + FIRST_CHAIN).to(model.device)
    return fill(chains, "masked", kernel.conditional, scorer, rng).forget()


def _blanks(
    layout: Layout, count: int, kernel: Kernel, model: MaskedModel, sizes: int | None = None
) -> Layout:
    rows = [place * len(layout.tokens) // count for place in range(count)]
    return layout.blanked(model, rows, sizes).fitted(model, kernel.conditional.constraints)


def spans(layout: Layout, count: int, kernel: Kernel, model: MaskedModel) -> Int[Tensor, "n 2"]:
    """Return the fewest and the most positions with which such chains can meet constraints."""
    ends = (_blanks(layout, count, kernel, model, sizes) for sizes in (0, 1))
    return torch.tensor([[len(ids) for ids in end.tokens] for end in ends]).T


@contextmanager
def from_random_starts(what: str, instead: str) -> Iterator[None]:
    """Say what to do where discarded chains cannot begin."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what} cannot be found from random starts: {error} {instead}") from error


def alone(kernel: Kernel) -> Kernel:
    """Return a kernel without its replicas: what is measured is measured at their first."""
    return kernel.kernel if isinstance(kernel, Exchange) else kernel


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
    chains = pilot_chains(layout, _LENGTH_CHAINS, kernel, scorer, rng)
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
_CHAINS, _SHARE, _MOST_EPOCHS = 8, 2, 400


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
    chains = pilot_chains(layout, _CHAINS, kernel, scorer, rng)
    settled, spent = _settled(schedule), list[float]()
    while sum(spent) < paid and len(spent) < settled + _MOST_EPOCHS:
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


@from_random_starts("the ladder of temperatures", "Give one with --replicas 1,0.87,0.75.")
def find_ladder(kernel: Exchange, layout: Layout, scorer: Scorer, rng: Rng) -> tuple[float, ...]:
    """Return inverse temperatures, from 1 downwards, at which neighbours swap at a good rate."""
    pilots = pilot_chains(layout, _PILOTS, kernel, scorer, rng)
    step = -math.log(_RATIO)
    rows = replace(kernel, ladder=_ladder(step, kernel.replicas)).replicated(pilots)
    rates: list[float] = []
    for done in range(_WARM_UP + _ROUNDS * _EPOCHS):
        now = replace(kernel, ladder=_ladder(step, kernel.replicas), epoch=done)
        rows = now.init(replace(rows, beta=now.replicated(pilots).beta), scorer)
        rows = whole_epoch(now, rows, scorer, rng)
        rates.append(_swap_rate(now, rows))
        scorer.check()
        measured = done + 1 - _WARM_UP
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
