"""Kernels made of kernels: a mixture takes one of its parts at random.

It leaves a target invariant if every part does and all parts have the same target.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.kernels.base import Composite, Kernel
from maskov.models.scorer import Scorer
from maskov.random import NestedRng, Purpose, Rng
from maskov.types import Chains, Float, Int, Proposal, Resized, StepInfo, Tensor


@dataclass(frozen=True)
class Mixture(Composite):
    """At each step one of the kernels, drawn by its weight, whatever the tokens are.

    An epoch has as many steps as one of the first kernel. The parts share the epoch's order of
    positions, which the last of them sets.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.kernels:
            raise InputError("a mixture needs at least one kernel.")
        kept = [kernel.conditional.constraints for kernel in self.kernels]
        if any(one != kept[0] for one in kept):
            raise InputError(
                "all moves must keep the same constraints; custom moves keep none, unless their "
                "`conditional` has them."
            )
        if self.weights and len(self.weights) != len(self.kernels):
            raise InputError("a mixture has one weight for each kernel.")
        if not all(weight > 0 for weight in self.weights):
            raise InputError("the weights of a mixture must be above 0.")

    def with_kernels(self, kernels: tuple[Kernel, ...]) -> Kernel:
        """Return the composition of other parts."""
        return replace(self, kernels=kernels)

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Kernel:
        """Let every part follow the schedule."""
        return self.with_kernels(tuple(k.at(epoch, temperature, block) for k in self.kernels))

    def with_energy(self, energy: Energy) -> Kernel:
        """Give every part the energy."""
        return self.with_kernels(tuple(kernel.with_energy(energy) for kernel in self.kernels))

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Draw a kernel for each chain, and let it step, by its own count of steps."""
        which, numbers = self.turn(chains, rows, rng)
        infos, step = [], chains.epoch_step
        for part, kernel in enumerate(self.kernels):
            own = rows[which == part]
            if own.numel():
                # What another part cached may be of no use to this one.
                chains = kernel.init(replace(chains, epoch_step=numbers[part]), scorer)
                chains, info = kernel.step(chains, own, scorer, NestedRng(rng))
                infos.append(info)
        step = step.index_add(0, rows, torch.ones_like(rows))
        return replace(chains, epoch_step=step), _joined(infos, rows)

    def turn(
        self, chains: Chains, rows: Int[Tensor, " n"], rng: Rng
    ) -> tuple[Int[Tensor, " n"], Int[Tensor, "kernels chains"]]:
        """Return which part steps each of some chains, and how many steps of each part are done."""
        weights = self.weights or (1.0,) * len(self.kernels)
        chances: Float[Tensor, "n kernels"] = torch.tensor(
            [weights], dtype=torch.float64, device=rows.device
        ).expand(len(rows), -1)
        chances = chances / chances.sum(1, keepdim=True)
        which = rng.categorical(chances, chains.chain[rows], chains.step[rows], Purpose.KERNEL)
        # A part whose own epoch is shorter goes round it again.
        lengths = torch.stack([kernel.steps(chains) for kernel in self.kernels])
        return which, chains.epoch_step % lengths.clamp(min=1)

    def __str__(self) -> str:
        return f"mixture({', '.join(map(str, self.kernels))})"


def _unresized(proposal: Proposal) -> Resized:
    """Return what becomes of sequences that keep their length; only for the record of a step."""
    changed, zero = proposal.changed, torch.zeros_like(proposal.lengths)
    place = torch.arange(changed.shape[1], device=changed.device).expand(changed.shape)
    return Resized(
        changes=changed.any(1),
        free=torch.zeros_like(changed),
        region=torch.full_like(place, -1),
        origin=place,
        removed=torch.zeros_like(changed),
        start=zero,
        size=zero,
    )


def _joined(infos: list[StepInfo], rows: Int[Tensor, " n"]) -> StepInfo:
    """Put what happened to different chains into one record, in the order of `rows`."""
    if len(infos) == 1:
        return infos[0]
    order = torch.cat([info.proposal.rows for info in infos]).argsort()
    order = order[rows.argsort().argsort()]

    def column(values: list[Tensor]) -> Tensor:
        if values[0].dim() == 2:  # parts may have different numbers of tests
            empty = torch.nan if values[0].is_floating_point() else 0
            widest = max(value.shape[1] for value in values)
            pad = torch.nn.functional.pad
            values = [pad(one, (0, widest - one.shape[1]), value=empty) for one in values]
        return torch.cat(values)[order]

    proposals = [info.proposal for info in infos]
    columns = [
        f.name for f in fields(Proposal) if f.name not in ("passed", "confidence", "resized")
    ]
    joined: dict[str, Any] = {n: column([getattr(p, n) for p in proposals]) for n in columns}
    resized = None
    if any(one.resized is not None for one in proposals):
        every = [one.resized or _unresized(one) for one in proposals]
        resized = Resized(
            **{f.name: column([getattr(one, f.name) for one in every]) for f in fields(Resized)}
        )
    proposal = Proposal(**joined, resized=resized)
    rest = {
        f.name: column([getattr(info, f.name) for info in infos])
        for f in fields(StepInfo)
        if f.name != "proposal"
    }
    return StepInfo(proposal=proposal, **rest)
