"""Kernels made of kernels: a mixture takes one of its parts at random; replicas exchange states.

A mixture leaves a target invariant if every part does and all parts have the same target.

Replica exchange (parallel tempering) moves copies of a chain at several temperatures. Each chain is
a set of R rows, neighbours in the batch. Row i of a set has the target π_i ∝ exp(−β_i E/T), with 1
= β_0 > β_1 > … > β_{R−1} > 0: the *ladder*. An epoch is one epoch of the inner kernel for every
row, then tests of neighbouring rows i and j = i + 1, which exchange their states with probability

    min(1, π_i(x_j) π_j(x_i) / (π_i(x_i) π_j(x_j))) = min(1, exp((β_i − β_j)(E(x_i) − E(x_j))/T)).

This leaves the product Π_i π_i invariant, so the first row of each set samples from the kernel's
own target. Even pairs (0, 1), (2, 3), … are tested after even epochs and odd pairs after odd ones,
whatever the tokens are. Energies are cached, so a swap costs no pass.

A swap moves the state from row to row. The temperature and the random numbers stay with the row,
and `Chains.replica` says which state is where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.kernels.base import Composite, Kernel, Wrapper, leaves, log_ratio, taken
from maskov.kernels.metropolis import Metropolis
from maskov.models.scorer import Scorer
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, StepInfo, Tensor

MOST_REPLICAS = 16
# More chains than a run can have: what the numbers of neighbouring rows of a set differ by.
_STRIDE = 2**27


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


@dataclass(frozen=True)
class Exchange(Wrapper):
    """Move `replicas` copies of each chain by a kernel, and let neighbours of the ladder swap.

    `ladder` are the inverse temperatures from 1 downwards. Without one the run finds it before its
    first epoch (`maskov.tuning.tune`). `epoch` decides which pairs are tested. Nothing is swapped
    while acceptance is forced.
    """

    ladder: tuple[float, ...] = ()
    replicas: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        exchangeable = all(isinstance(leaf, Metropolis) for leaf in leaves(self.kernel))
        if not exchangeable or _wraps(self.kernel) or self.kernel.energy is None:
            raise InputError(
                f"'{self.kernel}' cannot exchange replicas: that needs Metropolis-Hastings, or a "
                "mixture of it, with one energy."
            )
        if self.ladder:
            check_ladder(self.ladder)
            if self.replicas not in (0, len(self.ladder)):
                raise InputError(
                    f"the ladder has {len(self.ladder)} temperatures, but --replicas is "
                    f"{self.replicas}: drop --replicas."
                )
            object.__setattr__(self, "replicas", len(self.ladder))
        if not 2 <= self.replicas <= MOST_REPLICAS:
            raise InputError(
                f"replicas are 2 to {MOST_REPLICAS} of each chain, not {self.replicas}."
            )

    @property
    def target_temperature(self) -> float:
        """The inner kernel's T, that of the first row of each set."""
        assert self.target is not None
        return self.target.temperature

    def replicated(self, chains: Chains) -> Chains:
        """Return the rows of chains that have not begun: a set for each, by the ladder.

        The first row of a set has the number of its chain, and so its random numbers.
        """
        if not self.ladder:
            raise InputError("the ladder of temperatures is not known yet.")
        count = len(chains.chain)
        rung = torch.arange(self.replicas, device=chains.chain.device).repeat(count)
        index = torch.arange(count, device=rung.device).repeat_interleave(self.replicas)
        rows = chains.rows(index)
        ladder = torch.tensor(self.ladder, dtype=torch.float64, device=rung.device)
        return replace(rows, chain=rows.chain + rung * _STRIDE, beta=ladder[rung], replica=rung)

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Exchange:
        """Let the inner kernel follow the schedule, and count the epochs."""
        return replace(self, kernel=self.kernel.at(epoch, temperature, block), epoch=epoch)

    def tested(self) -> Bool[Tensor, " pairs"]:
        """Return which pairs of neighbours are tested after this epoch."""
        return torch.arange(self.replicas - 1) % 2 == self.epoch % 2

    def end(self, chains: Chains, rng: Rng) -> Chains:
        """Test neighbouring rows of each set, and swap the states of those that pass."""
        first = torch.arange(0, len(chains.chain), self.replicas, device=chains.chain.device)
        pairs = self.tested().nonzero().flatten().to(first.device)
        colder = (first[:, None] + pairs).flatten()
        if not colder.numel():
            return chains
        ratio = self.log_ratio(chains, colder, colder + 1)
        passed, _ = rng.accept(
            ratio, chains.chain[colder], chains.step[colder], purpose=Purpose.SWAP
        )
        colder = colder[passed]
        index = torch.arange(len(chains.chain), device=first.device)
        return taken(
            chains, index.index_copy(0, colder, colder + 1).index_copy(0, colder + 1, colder)
        )

    def log_ratio(
        self, chains: Chains, colder: Int[Tensor, " n"], hotter: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        """Return the log of the ratio by which two rows swap."""
        beta, known = chains.beta / self.target_temperature, chains.part_values
        assert self.energy is not None
        assert known is not None
        even = torch.zeros_like(beta[colder])
        energy_drop = self.energy.total(known.values[colder] - known.values[hotter])
        return log_ratio(energy_drop, even, even, beta[colder] - beta[hotter])

    def __str__(self) -> str:
        ladder = ", ".join(f"{beta:g}" for beta in self.ladder) or f"{self.replicas} replicas"
        return f"exchange({self.kernel}, {ladder})"


def check_ladder(ladder: tuple[float, ...]) -> None:
    """Refuse inverse temperatures that are not a ladder."""
    falls = all(one > other for one, other in pairwise(ladder))
    if not (all(map(math.isfinite, ladder)) and ladder[0] == 1 and falls and ladder[-1] > 0):
        raise InputError(
            "a ladder has inverse temperatures that fall from 1 and stay above 0, such as "
            "1,0.87,0.75."
        )


def swapped(before: Chains, after: Chains, replicas: int) -> Bool[Tensor, "sets pairs"]:
    """Return which neighbours have exchanged their states between two moments of an epoch's end."""
    one, other = (chains.replica.view(-1, replicas) for chains in (before, after))
    return (one[:, :-1] == other[:, 1:]) & (one[:, 1:] == other[:, :-1])


def _wraps(kernel: Kernel) -> bool:
    """Whether a kernel is or holds a wrapper: replicas of replicas are none."""
    return isinstance(kernel, Wrapper) or any(map(_wraps, kernel.kernels))
