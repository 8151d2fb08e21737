"""Weights of lengths under which a run visits its lengths about evenly.

The weight of a length should be one over its share exp(−F(n)) of the target without weights. A
move from one length to another says something of the difference: with R its Metropolis-Hastings
ratio without weights, forward from n and back from n', the C that solves

    Σ_forward σ(log R − C) = Σ_back σ(log R + C)

estimates F(n) − F(n') (Bennett 1976). Discarded chains, spread over all lengths, measure such
ratios; the slopes begin the weights. Then the same chains run with these weights, which fall where
chains have been and rise where they have not, by less and less (Liang, Liu & Carroll 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from maskov.energies.lengths import LengthPrior
from maskov.execution.loop import ended, epoch
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.burn_in import BurnIn
from maskov.kernels.metropolis import Comparison
from maskov.models.scorer import Scorer
from maskov.moves import Resize
from maskov.random import Rng
from maskov.tuning.pilot import metropolis_parts, with_parts
from maskov.types import Chains, Float, Proposal, StepInfo, Tensor

# Epochs in which ratios are measured at fixed lengths.
_MEASURED = 2
# How far the weights of a length move at first, in an epoch of as many visits as there are lengths.
_GAIN = 2.0


@dataclass(frozen=True)
class _Watched(Metropolis):
    """Resizing moves that are tested in full, written down and never made."""

    ratios: list[tuple[int, int, float]] = field(default_factory=list, compare=False)

    def _test(
        self, chains: Chains, proposal: Proposal, comparison: Comparison, rng: Rng
    ) -> StepInfo:
        index = proposal.novel.nonzero().flatten()
        ratios = torch.full_like(proposal.log_q_forward, torch.nan)
        if index.numel():
            for number in range(len(self.plan.stages)):
                fall = comparison.fall(number, index)
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
    kernel: Kernel, chains: Chains, epochs: int, scorer: Scorer, rng: Rng
) -> LengthPrior:
    """Return weights of all lengths between the chains' bounds, by chains that are discarded."""
    fixed = (chains.inside & (chains.region < 0)).sum(1)
    first = int((fixed + chains.bounds[..., 0].sum(1)).min())
    last = int((fixed + chains.bounds[..., 1].sum(1)).max())
    ratios: list[tuple[int, int, float]] = []
    watched = with_parts(kernel, lambda part: _watched(part, ratios))
    for _ in range(_MEASURED):
        chains = _epoch(watched, chains, scorer, rng)[0]
    weights = _begin(ratios, first, last)
    for number in range(epochs):
        prior = LengthPrior(first, tuple(weights.tolist()))
        chains, visits = _epoch(weighed(kernel, prior), chains.forget(), scorer, rng)
        seen = torch.bincount(visits - first, minlength=len(weights)).double()
        # Each visit counts; on average nothing moves.
        gain = _GAIN * min(1.0, 4 / (number + 1))
        weights -= gain * (seen / seen.sum() * len(weights) - 1).clamp(max=4)
        weights -= weights[0].clone()
    return LengthPrior(first, tuple(round(weight, 6) for weight in weights.tolist()))


def weighed(kernel: Kernel, prior: LengthPrior) -> Kernel:
    """Return a kernel whose target weighs lengths by a prior."""
    # Times T, by which the kernel divides.
    kernel = with_parts(
        kernel, lambda part: replace(part, energy=part.energy + part.target_temperature * prior)
    )
    if not isinstance(kernel, BurnIn):
        return kernel
    heat = metropolis_parts(kernel)[0].target_temperature
    return replace(kernel, first=kernel.first + heat * prior)


def _watched(part: Metropolis, ratios: list[tuple[int, int, float]]) -> Metropolis:
    if not isinstance(part.move, Resize):
        return part
    return _Watched(part.energy, part.move, part.target_temperature, part.delayed, ratios=ratios)


def _epoch(kernel: Kernel, chains: Chains, scorer: Scorer, rng: Rng) -> tuple[Chains, Tensor]:
    """Run an epoch; return the chains and the lengths that they had after each step."""
    visits = []
    for after, _ in epoch(kernel, chains, scorer, rng):
        chains = after
        visits.append(chains.lengths)
    return ended(chains), torch.cat(visits).cpu()


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
