"""Weights of lengths under which a run visits its lengths about evenly.

The weight of a length should be one over its share exp(−F(n)) of the target without weights. A
move from one length to another says something of the difference: with R its Metropolis-Hastings
ratio without weights, forward from n and back from n', the C that solves

    Σ_forward σ(log R − C) = Σ_back σ(log R + C)

estimates F(n) − F(n') (Bennett 1976). Discarded chains, spread over all lengths, measure such
ratios; the slopes begin the weights.

Then the same chains run in rounds, each with fixed weights and twice as long as the one before.
Whatever the shares π(n) of the lengths are, chains go from n to n' as often as back, so that

    π(n') / π(n) = P(n → n') / P(n' → n),

and the rates P of a round tell how to change the weights, even before all lengths are visited
evenly (Fitzgerald, Picard & Silver 1999). The rounds end when the visits of one are even, or when
the chains have made as many steps as they may.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from maskov.energies.counting import LengthPrior
from maskov.execution.loop import ended, epoch
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import BurnIn, with_leaves
from maskov.kernels.metropolis import ProposalScores
from maskov.models.scorer import Scorer
from maskov.moves import Resize
from maskov.random import Rng
from maskov.types import Chains, Float, Int, Proposal, StepInfo, Tensor

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
    ratios: list[tuple[int, int, float]] = []
    watched = with_leaves(kernel, lambda part: _watched(part, ratios))
    chains, _ = _transitions(watched, chains, _MEASURED, first, len(length), scorer, rng)
    weights = _begin(ratios, first, last)
    steps = done = min(_ROUND, most)
    while True:
        now = weighed(kernel, LengthPrior(first, tuple(weights.tolist())))
        chains, moves = _transitions(now, chains.forget(), steps, first, len(length), scorer, rng)
        even = _evenness(moves.sum(0), expected)
        ends = even >= EVEN or done + 2 * steps > most
        weights += correction(moves, explores=not ends)
        weights -= weights[0].clone()
        if ends:
            return LengthPrior(first, tuple(round(weight, 6) for weight in weights.tolist())), even
        steps *= 2
        done += steps


def _evenness(visits: Float[Tensor, " lengths"], expected: Float[Tensor, " lengths"]) -> float:
    """Return how even visits are, from 0 (some length has none) to 1."""
    possible = expected > 0
    share = (visits / visits.sum())[possible] / (expected / expected.sum())[possible]
    return float(torch.minimum(share, 1 / share).min())


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
    system = torch.diag(trust.sum(1)) - trust
    inverse: Tensor = torch.linalg.pinv(system, hermitian=True)
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
    heat = kernel.target.temperature
    return replace(kernel, first=kernel.first + heat * prior)


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
