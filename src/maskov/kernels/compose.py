"""A kernel made of kernels: a mixture takes one of its parts at random.

A mixture leaves a target invariant if every part does and all parts have the same target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.kernels.base import Composite, Kernel
from maskov.models.scorer import Scorer
from maskov.random import Purpose, Rng
from maskov.types import Chains, Float, Int, StepInfo, Tensor


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
                chains, info = kernel.step(chains, own, scorer, rng.nested())
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


def _joined(infos: list[StepInfo], rows: Int[Tensor, " n"]) -> StepInfo:
    """Put what happened to different chains into one record, in the order of `rows`.

    What only some kinds of moves know of their proposals is left out.
    """
    if len(infos) == 1:
        return infos[0]
    order = torch.cat([info.proposal.rows for info in infos]).argsort()
    order = order[rows.argsort().argsort()]
    nothing: dict[str, Any] = dict.fromkeys(("passed", "confidence", "resized", "evaluated"))
    proposals = [replace(info.proposal, **nothing) for info in infos]

    def join(values: Sequence[Any]) -> Any:
        first = values[0]
        if first is None:
            return None
        if is_dataclass(first):
            record, names = type(values[0]), [field.name for field in fields(first)]
            return record(**{name: join([getattr(one, name) for one in values]) for name in names})
        if first.dim() == 2:  # parts may have different numbers of tests
            empty = torch.nan if first.is_floating_point() else 0
            widest = max(value.shape[1] for value in values)
            pad = torch.nn.functional.pad
            values = [pad(one, (0, widest - one.shape[1]), value=empty) for one in values]
        return torch.cat(list(values))[order]

    pairs = zip(infos, proposals, strict=True)
    joined: StepInfo = join([replace(info, proposal=proposal) for info, proposal in pairs])
    return joined
