"""What a run leaves open, chosen by chains that are discarded: epochs, lengths, paths.

A kernel chosen by looking at a chain depends on its state, and a chain that continues with such a
kernel leaves no target invariant, however it was started. So everything here is chosen by separate
chains: they begin at blanks filled at random, never at the user's texts; they share no random
numbers with other chains; and the choice is made, recorded and frozen before the first step of a
run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from maskov.config import Schedule, Tuning
from maskov.energies.counting import LengthPrior
from maskov.errors import InputError, refuse
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import BurnIn, ended, epoch, kernel_at, whole_epoch, with_leaves
from maskov.kernels.metropolis import ProposalScores
from maskov.kernels.population import Population, effective_share
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import Resize
from maskov.random import Rng
from maskov.starts import ChainStart, Layout, fill
from maskov.types import Chains, Float, Int, Proposal, StepInfo, Tensor

# Their random numbers are those of chains from here on, which no run has.
FIRST_CHAIN = 2**31


def pilot_chains(layout: Layout, count: int, kernel: Kernel, scorer: Scorer, rng: Rng) -> Chains:
    """Return chains laid out as some of a run's, whatever is free filled at random.

    Where lengths may change they are spread over the bounds: that of a text is a part of its state.
    Constraints are met by the way blanks are filled.
    """
    model = scorer.model
    chains = _blanks(layout, count, kernel, model).chains(model, range(count), layout.width)
    chains = replace(chains, chain=chains.chain + FIRST_CHAIN).to(model.device)
    return fill(chains, "masked", kernel.conditional, scorer, rng).forget()


def _blanks(
    layout: Layout, count: int, kernel: Kernel, model: MaskedModel, end: int | None = None
) -> Layout:
    """Return blank chains of sizes spread over the bounds, or all at the smaller or larger end."""
    starts = list[ChainStart]()
    for number in range(count):
        start = layout.starts[number * len(layout.starts) // count]
        sizes = [
            a + int((number + 0.5) / count * (b - a + 1)) if end is None else (a, b)[end]
            for a, b in start.bounds
        ]
        starts.append(start.blanked(model, sizes))
    return Layout(starts).fitted(model, kernel.conditional.constraints)


@contextmanager
def from_random_starts(what: str, instead: str) -> Iterator[None]:
    """Say what to do where discarded chains cannot begin."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what} cannot be found from random starts: {error} {instead}") from error


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
    last = kernel_at(kernel, replace(schedule, force_accept=0), schedule.epochs - 1)
    with from_random_starts("weights of lengths", "Give weights with --length-prior, or none."):
        chains = pilot_chains(layout, _LENGTH_CHAINS, last, scorer, rng)
        # The fewest and the most positions with which each of them can meet constraints.
        ends = (_blanks(layout, _LENGTH_CHAINS, last, scorer.model, end) for end in (0, 1))
        own = torch.tensor([[len(one.tokens) for one in end.starts] for end in ends]).T
        # All chains together make at most as many steps as the run.
        steps = int(last.steps(chains).max()) * schedule.epochs * len(layout.starts)
        found, even = flat_weights(
            last, chains, own, max(_LENGTH_STEPS, steps // _LENGTH_CHAINS), scorer, rng
        )
    scorer.check()
    return Tuning(found.first, found.log_weights, round(even, 3), scorer.passes - before)


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
    chains = pilot_chains(layout, _CHAINS, kernel, scorer, rng)
    moving = [one.settled_at() for one in (schedule.target_temperature, schedule.block) if one]
    # The epoch from which on the kernel no longer changes.
    settled = math.ceil(max(schedule.burn_in, schedule.force_accept, *moving))
    spent = list[float]()
    while sum(spent) < passes and len(spent) < settled + _MOST_EPOCHS:
        begun = sum(spent[:settled])
        if len(spent) > settled + 1 and sum(spent) - begun >= (passes - begun) / _SHARE:
            break
        least = max(len(spent), schedule.burn_in, schedule.force_accept) + 1
        now = kernel_at(kernel, replace(schedule, epochs=least), len(spent))
        cost = 0.0
        for after, info in epoch(now, chains, scorer, rng):
            chains = after
            cost += float(info.passes.sum()) / _CHAINS
        chains = ended(chains)
        spent.append(cost)
    over = sum(spent) - passes
    if over >= 0:  # without the last epoch, if that is nearer
        return max(1, len(spent) - (over > spent[-1] / 2))
    later = spent[settled + (len(spent) - settled) // 2 :]
    # Epochs that cost nothing would allow endless ones.
    return len(spent) + round(-over / max(sum(later) / len(later), 1.0))


# Weights of lengths under which a run visits its lengths about evenly.
#
# The weight of a length should be one over its share exp(−F(n)) of the target without weights. A
# move from one length to another says something of the difference: with R its Metropolis-Hastings
# ratio without weights, forward from n and back from n', the C that solves
#
#     Σ_forward σ(log R − C) = Σ_back σ(log R + C)
#
# estimates F(n) − F(n') (Bennett 1976). Discarded chains, spread over all lengths, measure such
# ratios; the slopes begin the weights.
#
# Then the same chains run in rounds, each with fixed weights and twice as long as the one before.
# Whatever the shares π(n) of the lengths are, chains go from n to n' as often as back, so that
#
#     π(n') / π(n) = P(n → n') / P(n' → n),
#
# and the rates P of a round tell how to change the weights, even before all lengths are visited
# evenly (Fitzgerald, Picard & Silver 1999). The rounds end when the visits of one are even, or when
# the chains have made as many steps as they may.


# Steps in which ratios are measured at fixed lengths, and those of the first round.
_MEASURED, _ROUND = 32, 128
# Each length is to be visited at least this share of an even one, and at most one over it.
EVEN = 0.5
# How far the weights of lengths with no move between them follow each other.
_BOUND = 1e-6


@dataclass(frozen=True)
class _Watched(Metropolis):
    """Resizing moves that are tested in full, written down and never made."""

    ratios: list[tuple[int, int, float]] = field(default_factory=list, compare=False)

    def _test(
        self, chains: Chains, proposal: Proposal, comparison: ProposalScores, rng: Rng
    ) -> StepInfo:
        index = proposal.novel.nonzero().flatten()
        ratios = torch.full_like(proposal.log_q_forward, torch.nan)
        if index.numel():
            for number in range(len(self.plan.stages)):
                fall = comparison.energy_drop(number, index)
            whole = torch.zeros_like(ratios).index_copy(0, index, fall)
            ratios[index] = self.log_ratio(chains, proposal, whole)[index]
            before, after = chains.lengths[proposal.rows][index], proposal.lengths[index]
            self.ratios.extend(
                zip(before.tolist(), after.tolist(), ratios[index].tolist(), strict=True)
            )
        never = torch.zeros_like(proposal.rows, dtype=torch.bool)
        return StepInfo(
            proposal, comparison.energy_old, comparison.energy_new, ratios[:, None],
            torch.full_like(ratios, torch.nan)[:, None], torch.zeros_like(ratios),
            never, proposal.passes + comparison.passes, comparison.calls,
        )  # fmt: skip


def flat_weights(
    kernel: Kernel,
    chains: Chains,
    spans: Int[Tensor, "chains 2"],
    most: int,
    scorer: Scorer,
    rng: Rng,
) -> tuple[LengthPrior, float]:
    """Return weights of all lengths, by chains that are discarded, and how even the visits were.

    `spans` are the fewest and the most positions that each chain may have, `most` the steps that it
    makes at most. Visits are 1 if they are even; a length that was visited x or 1/x times as often
    as that makes them x.
    """
    first, last = int(spans[:, 0].min()), int(spans[:, 1].max())
    length = torch.arange(first, last + 1)
    inside = ((length >= spans[:, :1]) & (length <= spans[:, 1:])).double()
    expected = (inside / inside.sum(1, keepdim=True)).sum(0)
    possible, expected = expected > 0, expected / expected.sum()
    ratios: list[tuple[int, int, float]] = []
    watched = with_leaves(kernel, lambda part: _watched(part, ratios))
    chains, _ = _transitions(watched, chains, _MEASURED, first, len(length), scorer, rng)
    weights = _begin(ratios, first, last)
    steps = done = min(_ROUND, most)
    while True:
        now = weighed(kernel, LengthPrior(first, tuple(weights.tolist())))
        chains, moves = _transitions(now, chains.forget(), steps, first, len(length), scorer, rng)
        visits = moves.sum(0)
        share = (visits / visits.sum())[possible] / expected[possible]
        even = float(torch.minimum(share, 1 / share).min())
        ends = even >= EVEN or done + 2 * steps > most
        weights += correction(moves, explores=not ends)
        weights -= weights[0].clone()
        if ends:
            return LengthPrior(first, tuple(round(weight, 6) for weight in weights.tolist())), even
        steps *= 2
        done += steps


def correction(
    moves: Float[Tensor, "lengths lengths"], explores: bool = False
) -> Float[Tensor, " lengths"]:
    """Return how to change log-weights so that lengths are visited evenly.

    `moves` counts the steps from each length to each other. All pairs of lengths between which
    chains went are fitted together, by how much is known of each. Where it `explores`, lengths that
    were not visited next to some that were gain by as much as that says.
    """
    visits, counts = moves.sum(1), moves + 0.5
    rate = counts.log() - (visits + 0.5).log()[:, None]
    rise = rate - rate.T  # from the row's length to the column's
    known = moves + moves.T > 0
    beside = torch.ones(len(moves) - 1, dtype=torch.bool)
    beside = torch.diag(beside, 1) | torch.diag(beside, -1)
    if explores:
        known |= beside & ((visits > 0)[:, None] != (visits > 0))
    trust = torch.where(known, 1 / (1 / counts + 1 / counts.T), 0.0)
    rise = torch.where(known, rise, 0.0)
    trust = (trust + _BOUND * beside).fill_diagonal_(0.0)
    inverse: Tensor = torch.linalg.pinv(torch.diag(trust.sum(1)) - trust, hermitian=True)
    return -(inverse @ (trust * rise).sum(0))


def weighed(kernel: Kernel, prior: LengthPrior) -> Kernel:
    """Return a kernel whose target weighs lengths by a prior."""

    def with_prior(part: Kernel) -> Kernel:
        if not isinstance(part, Metropolis):
            return part
        # Times T, by which the kernel divides.
        return replace(part, energy=part.energy + part.target_temperature * prior)

    kernel = with_leaves(kernel, with_prior)
    if not isinstance(kernel, BurnIn):
        return kernel
    assert kernel.target is not None
    return replace(kernel, first=kernel.first + kernel.target.temperature * prior)


def _watched(part: Kernel, ratios: list[tuple[int, int, float]]) -> Kernel:
    if not isinstance(part, Metropolis) or not isinstance(part.move, Resize):
        return part
    return _Watched(part.energy, part.move, part.target_temperature, part.delayed, ratios=ratios)


def _transitions(
    kernel: Kernel, chains: Chains, steps: int, first: int, size: int, scorer: Scorer, rng: Rng
) -> tuple[Chains, Float[Tensor, "lengths lengths"]]:
    """Run whole epochs of so many steps or more; count the steps from each length to each other."""
    moves = torch.zeros((size, size), dtype=torch.float64)
    done = 0
    while done < steps:
        for after, info in epoch(kernel, chains, scorer, rng):
            rows = info.proposal.rows
            places = tuple((one.lengths[rows] - first).cpu() for one in (chains, after))
            moves.index_put_(places, torch.ones(len(rows), dtype=torch.float64), accumulate=True)
            chains = after
            done += 1
        chains = ended(chains)
    return chains, moves


def _begin(
    ratios: list[tuple[int, int, float]], first: int, last: int
) -> Float[Tensor, " lengths"]:
    """Return weights whose slope is that of the measured ratios, in three parts of the range."""
    edges = torch.linspace(first, last, 4)
    slopes = torch.zeros(last - first, dtype=torch.float64)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        near = [one for one in ratios if low - 1 <= (one[0] + one[1]) / 2 <= high + 1]
        rise = torch.tensor([r / (b - a) for a, b, r in near if b > a and r > -torch.inf])
        fall = torch.tensor([r / (a - b) for a, b, r in near if b < a and r > -torch.inf])
        if rise.numel() and fall.numel():
            place = torch.arange(first, last) + 0.5
            slopes[(place >= low - 0.5) & (place <= high + 0.5)] = bennett(rise, fall)
    return torch.cat([torch.zeros(1, dtype=torch.float64), -slopes.cumsum(0)])


def bennett(rise: Float[Tensor, " n"], fall: Float[Tensor, " m"]) -> float:
    """Return log Z(n+1)/Z(n), given log-ratios of moves up from n and down from n+1."""
    low, high = -1e4, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        up = (rise.double() - middle).sigmoid().mean()
        down = (fall.double() + middle).sigmoid().mean()
        low, high = (middle, high) if up > down else (low, middle)
    return (low + high) / 2


# The path of a population.
#
# The pilot goes along the path as a population does, and takes at each point the longest step that
# leaves a given share of its particles effective. A path that a population chose by its own
# particles would bias its estimate of Z, so the pilot's path is frozen, and its particles are not
# kept.


# A step leaves at least this share of the particles effective.
AIM = 0.95
# Particles of a pilot; how exactly a step is found, and the most of them.
PILOTS, _HALVINGS, _MOST_POINTS = 32, 30, 10_000
_DIGITS = 9
# Temperatures that a start may have, unless it was given.
_TEMPERATURES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
# Draws by which they are compared.
_DRAWS = 16


def planned_path(
    kernel: Population, layout: Layout, scorer: Scorer, rng: Rng, passes: int | None = None
) -> Population:
    """Return the population with its start and its path, found by pilots of the run's own layout.

    Where lines of input differ, the pilot is of the first: another line's path is as valid, if
    less even.
    """
    count = min(PILOTS, len(layout.starts))
    chains = layout.chains(scorer.model, range(count), layout.width).to(scorer.model.device)
    blank = replace(chains, chain=chains.chain + FIRST_CHAIN)
    few = torch.arange(min(_DRAWS, count), device=scorer.model.device)
    return with_path(choose_start(kernel, blank.rows(few), scorer, rng), blank, scorer, rng, passes)


def with_path(
    kernel: Population, blank: Chains, scorer: Scorer, rng: Rng, passes: int | None = None
) -> Population:
    """Return the population with the path of a pilot that fills these blanks.

    With `passes` it has as many points as they pay for, otherwise at least as many as give each
    position a move: with fewer no verdict is positive.
    """
    pilot = replace(kernel, particles=len(blank.chain), longer=1)
    path, before, each = find_path(pilot, blank, scorer, rng)
    if passes is None:
        positions = int(blank.free.sum(1).max())
        points = max(len(path), -(-positions // kernel.moves))
    else:
        each *= kernel.even.moves / kernel.moves
        points = max(1, round((passes - before) / max(each, 1e-9)))
    return replace(kernel, path=stretched(path, points))


def choose_start(kernel: Population, blank: Chains, scorer: Scorer, rng: Rng) -> Population:
    """Return the population with the temperature of its start that is nearest to the target.

    Nearest is where the log-weights of a few draws, from the start to the target at once, have the
    smallest variance; the search goes down until it rises. A start at temperature 1 may be a part
    of the target and cost nothing extra; parts with one order share their passes.
    """
    best, least = kernel, math.inf
    for temperature in _TEMPERATURES:
        now = replace(
            kernel, start=replace(kernel.start, temperature=temperature), path=(), epoch=0
        )
        chains = now.init(now.first(blank, scorer, rng), scorer)
        variance = float(now.log_weights(chains, 0.0, 1.0).var())
        scorer.check()
        if variance > least:
            break
        best, least = replace(kernel, start=now.start), variance
    return best


def find_path(
    kernel: Population, blank: Chains, scorer: Scorer, rng: Rng, aim: float = AIM
) -> tuple[tuple[float, ...], float, float]:
    """Return a path on which neighbouring points differ evenly, from particles to be drawn.

    Also the passes of a particle: before the first point, and at each on average.
    """
    begun, count = scorer.passes, len(blank.chain)
    whole, path = replace(kernel, path=(), epoch=0), list[float]()
    chains = whole.init(kernel.first(blank, scorer, rng), scorer)
    started = scorer.passes
    while not path or path[-1] < 1:
        refuse(
            (
                len(path) == _MOST_POINTS,
                "no path to the target was found: the start is too far from it.",
            )
        )
        path.append(_next(whole, chains, path[-1] if path else 0.0, aim))
        now = replace(kernel, path=(*path[:-1], *sorted({path[-1], 1.0})), epoch=len(path) - 1)
        chains = whole_epoch(now, now.init(chains, scorer), scorer, rng)
        scorer.check()
    return tuple(path), (started - begun) / count, (scorer.passes - started) / (count * len(path))


def _next(kernel: Population, chains: Chains, here: float, aim: float) -> float:
    """Return the farthest point at which so many particles are effective, by halving."""

    def effective(share: float) -> float:
        return effective_share(kernel.log_weights(chains, here, share))

    if effective(1.0) >= aim:
        return 1.0
    low, high = here, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= aim else (low, middle)
    # A little further than the start, whatever the particles say.
    return round(max(low, here + (1 - here) * 10.0 ** (2 - _DIGITS)), _DIGITS)


def stretched(path: tuple[float, ...], points: int) -> tuple[float, ...]:
    """Return a path of another number of points with the same relative steps."""
    places = [number * len(path) / points for number in range(1, points)]
    found = np.interp(places, range(len(path) + 1), (0.0, *path)).tolist()
    return (*(round(share, _DIGITS) for share in found), 1.0)
