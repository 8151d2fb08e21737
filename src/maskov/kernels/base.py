"""A kernel moves chains: `init` once, then `step` after `step`, both called by the one epoch loop.

Kernels hold no state: chains in, `(chains, info)` out. To write one, subclass `Kernel`; to combine
some, use `Mixture`; `maskov.testing.check_kernel` proves either. Some are made of other `kernels`;
`leaves` returns those at the bottom.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch.nn.functional import pad

from maskov.config import Schedule
from maskov.energies.base import Energy
from maskov.errors import InputError, refuse
from maskov.models.scorer import Scorer
from maskov.moves.base import MaskedConditional
from maskov.random import Purpose, Rng
from maskov.types import Chains, Float, Int, Proposal, StepInfo, Tensor


@dataclass(frozen=True)
class Target:
    """The distribution p(x) ∝ exp(−E(x)/T) that a kernel is meant to sample."""

    energy: Energy
    temperature: float = 1.0

    def same_as(self, other: Target | None) -> bool:
        """Whether both are one distribution, by the objects they are made of."""
        return (
            other is not None
            and self.temperature == other.temperature
            and self.energy.same_as(other.energy)
        )


class Kernel(ABC):
    """A way to move chains."""

    # The energy whose distribution the kernel is meant to sample, if it has one.
    energy: Energy | None = None
    # Whether the kernel's first step fills every blank by itself.
    fills_blanks: bool = False
    # Neighbouring chains that are one population (`maskov.kernels.population`); 0: none are.
    particles: int = 0
    # The distribution from which blanks are filled before the first epoch.
    conditional: MaskedConditional = MaskedConditional()
    # The kernels that this one is made of, if it is.
    kernels: tuple[Kernel, ...] = ()
    # Whether every allowed sequence can be reached.
    reaches_everything: bool = True

    @property
    def target(self) -> Target | None:
        """The distribution of the kernel's energy at its temperature, if it has one."""
        temperature: float = getattr(self, "target_temperature", 1.0)
        return None if self.energy is None else Target(self.energy, temperature)

    @property
    @abstractmethod
    def leaves_invariant(self) -> bool:
        """Whether a step leaves the kernel's target distribution unchanged."""

    @abstractmethod
    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Add what the kernel caches about the current tokens, where it is not there already."""

    @abstractmethod
    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Move the chosen chains once; the others stay as they are.

        The chains returned have `step` and `epoch_step` counted up (see `counted`).
        """

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Prepare the epoch that starts now, such as its order of positions."""
        return chains

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the number of steps of an epoch for each chain."""
        return chains.visits

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Kernel:
        """Return the kernel as it is in one epoch, with the schedule's values where it has some."""
        return self

    def with_energy(self, energy: Energy) -> Kernel:
        """Return this kernel with another energy as its target."""
        raise InputError(
            f"'{self}' cannot take another energy for its burn-in: drop --burn-in-energy."
        )

    def forced(self) -> Kernel:
        """Return this kernel accepting everything, for initialisation."""
        raise InputError(f"'{self}' cannot accept everything: drop --force-accept.")

    def with_kernels(self, kernels: tuple[Kernel, ...]) -> Kernel:
        """Return this kernel made of other ones, as many as it has."""
        return replace(self, kernels=kernels)  # type: ignore[type-var]


class Composite(Kernel):
    """A kernel made of others, which does what the first of them does unless it says otherwise."""

    @property
    def target(self) -> Target | None:
        """The target that all parts share, if they do."""
        first, *others = (kernel.target for kernel in self.kernels)
        shared = first is not None and all(first.same_as(other) for other in others)
        return first if shared else None

    @property
    def energy(self) -> Energy | None:  # type: ignore[override]
        """That of the target."""
        return None if self.target is None else self.target.energy

    @property
    def leaves_invariant(self) -> bool:
        """True if every part does, all with one target."""
        alike = len(self.kernels) == 1 or self.target is not None
        return alike and all(kernel.leaves_invariant for kernel in self.kernels)

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """Whether the first step does, whichever part makes it."""
        return all(kernel.fills_blanks for kernel in self.kernels)

    @property
    def conditional(self) -> MaskedConditional:  # type: ignore[override]
        """That of the first part."""
        return self.kernels[0].conditional

    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Prepare the first part."""
        return self.kernels[0].init(chains, scorer)

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Prepare the epoch of every part."""
        for kernel in self.kernels:
            chains = kernel.begin(chains, rng)
        return chains

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the steps of the first part."""
        return self.kernels[0].steps(chains)

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Make a step of the first part."""
        return self.kernels[0].step(chains, rows, scorer, rng)

    def forced(self) -> Kernel:
        """Accept everything, as the first part would."""
        return self.kernels[0].forced()


def leaves(kernel: Kernel) -> list[Kernel]:
    """Return the kernels that a kernel is made of at last, in order; itself if of none."""
    return [leaf for one in kernel.kernels for leaf in leaves(one)] or [kernel]


def with_leaves(kernel: Kernel, change: Callable[[Kernel], Kernel]) -> Kernel:
    """Return a kernel with each of its leaves changed, called in their order."""
    if not kernel.kernels:
        return change(kernel)
    return kernel.with_kernels(tuple(with_leaves(one, change) for one in kernel.kernels))


def counted(chains: Chains, rows: Int[Tensor, " n"]) -> Chains:
    """Count a step of the chosen chains."""
    one = torch.ones_like(rows)
    return replace(
        chains,
        step=chains.step.index_add(0, rows, one),
        epoch_step=chains.epoch_step.index_add(0, rows, one),
    )


def with_tokens(chains: Chains, proposal: Proposal, accepted: Tensor) -> Chains:
    """Put the accepted tokens, and how sure the model was of them, in their place."""
    rows = proposal.rows
    new: dict[str, Tensor] = {"tokens": proposal.tokens, "lengths": proposal.lengths}
    if proposal.confidence is not None:
        new["confidence"] = proposal.confidence
    if proposal.resized is not None:
        new |= {"free": proposal.resized.free, "region": proposal.resized.region}
    changed: dict[str, Any] = {}
    for name, value in new.items():
        old: Tensor = getattr(chains, name)
        taken = accepted if value.dim() == 1 else accepted[:, None]
        changed[name] = old.index_copy(0, rows, torch.where(taken, value, old[rows]))
    return replace(chains, **changed)


def log_ratio(
    energy_drop: Float[Tensor, " n"],
    log_q_forward: Float[Tensor, " n"],
    log_q_reverse: Float[Tensor, " n"],
    temperature: float | Float[Tensor, " n"],
) -> Float[Tensor, " n"]:
    """Return log π(x')q(x|x') − log π(x)q(x'|x), where `energy_drop` = E(x) − E(x')."""
    return energy_drop * (1 / temperature) + (log_q_reverse - log_q_forward)


@dataclass(frozen=True)
class BurnIn(Composite):
    """A kernel that runs take through the `epochs` of burn-in with `first` as its target.

    A schedule names that energy (`Schedule.burn_in_energy`). After burn-in, and in all that it says
    of itself, it is the only one of its `kernels`.
    """

    first: Energy
    epochs: int
    kernels: tuple[Kernel, ...]

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Kernel:
        """Return the kernel of one epoch, with the energy that it has there."""
        kernel = self.kernels[0]
        if epoch < self.epochs:
            kernel = kernel.with_energy(self.first)
        return kernel.at(epoch, temperature, block)

    def __str__(self) -> str:
        return str(self.kernels[0])


@dataclass(frozen=True)
class Mixture(Composite):
    """At each step one of the kernels, drawn by its weight, whatever the tokens are.

    It leaves a target invariant if every part does and all parts have the same target.
    An epoch has as many steps as one of the first kernel. The parts share the epoch's order of
    positions, which the last of them sets.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        kept = [kernel.conditional.constraints for kernel in self.kernels]
        refuse(
            (not self.kernels, "a mixture needs at least one kernel."),
            (
                any(one != kept[0] for one in kept),
                "all moves must keep the same constraints; custom moves keep none, unless their "
                "`conditional` has them.",
            ),
            (
                self.weights and len(self.weights) != len(self.kernels),
                "a mixture has one weight for each kernel.",
            ),
            (
                not all(weight > 0 for weight in self.weights),
                "the weights of a mixture must be above 0.",
            ),
        )

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

    def chances(self, device: torch.device) -> Float[Tensor, "1 kernels"]:
        """Return the probability of each part at a step."""
        weights = self.weights or (1.0,) * len(self.kernels)
        chances = torch.tensor([weights], dtype=torch.float64, device=device)
        return chances / chances.sum(1, keepdim=True)

    def turn(
        self, chains: Chains, rows: Int[Tensor, " n"], rng: Rng
    ) -> tuple[Int[Tensor, " n"], Int[Tensor, "kernels chains"]]:
        """Return which part steps each of some chains, and how many steps of each part are done."""
        chances = self.chances(rows.device).expand(len(rows), -1)
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
    order = torch.cat([info.proposal.rows for info in infos]).argsort()[rows.argsort().argsort()]

    def join(values: Sequence[Any]) -> Any:
        first = values[0]
        if first is None:
            return None
        if is_dataclass(first):
            names = [field.name for field in fields(first)]
            joined = {name: join([getattr(one, name) for one in values]) for name in names}
            return type(values[0])(**joined)
        if first.dim() == 2:  # parts may have different numbers of tests
            empty = torch.nan if first.is_floating_point() else 0
            widest = max(value.shape[1] for value in values)
            values = [pad(one, (0, widest - one.shape[1]), value=empty) for one in values]
        return torch.cat(list(values))[order]

    nothing: dict[str, Any] = dict.fromkeys(("passed", "confidence", "resized", "evaluated"))
    whole: StepInfo = join(
        [replace(info, proposal=replace(info.proposal, **nothing)) for info in infos]
    )
    return whole


def energies_of(kernel: Kernel) -> list[Energy]:
    """Return the energies of a kernel's parts in order, then that of its burn-in."""
    found = [leaf.energy for leaf in leaves(kernel) if leaf.energy is not None]
    return [*found, kernel.first] if isinstance(kernel, BurnIn) else found


# The one epoch loop: every run, start and replay in lock-step goes through it.


def epoch(
    kernel: Kernel, chains: Chains, scorer: Scorer, rng: Rng
) -> Iterator[tuple[Chains, StepInfo]]:
    """Yield the chains and what happened after each step of an epoch.

    An epoch that was interrupted continues where it stopped. `ended` makes chains ready for the
    next.
    """
    chains = kernel.init(chains, scorer)
    if not bool(chains.epoch_step.any()):
        chains = kernel.begin(chains, rng)
    steps = kernel.steps(chains)
    while (rows := (chains.epoch_step < steps).nonzero().flatten()).numel():
        chains, info = kernel.step(chains, rows, scorer, rng)
        yield chains, info


def ended(chains: Chains) -> Chains:
    """Return chains that have ended their epoch, before the next."""
    return replace(chains, epoch_step=torch.zeros_like(chains.epoch_step))


def whole_epoch(kernel: Kernel, chains: Chains, scorer: Scorer, rng: Rng) -> Chains:
    """Run one epoch and return the chains."""
    for after, _ in epoch(kernel, chains, scorer, rng):
        chains = after
    return ended(chains)


def kernel_at(kernel: Kernel, schedule: Schedule, epoch: int) -> Kernel:
    """Return the kernel as the schedule has it in one epoch."""
    temperature = schedule.target_temperature
    now = kernel.at(
        epoch,
        None if temperature is None else temperature.at(epoch),
        None if schedule.block is None else schedule.block_at(epoch),
    )
    return now if epoch >= schedule.force_accept else now.forced()
