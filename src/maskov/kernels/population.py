"""Draws of an ordered energy: alone, as proposals, and as the first particles of populations.

An ordered energy (`maskov.energies.ordered`) is −log q of a distribution that can be drawn from.
`Draws` is the kernel whose target is q itself. `Redraw` is the move that proposes a draw, whatever
stands there (an independence sampler):

    q(x'|x) = q(x'),    q(x|x') = q(x).

A chain forgets its sequence whenever it accepts. Where the target is q(x) exp(−λ E(x)) with a small
λ, q cancels in the test, a good share is accepted, and chains of free sentences converge, which
moves of a few places at a time do not. Far from q nearly every draw is rejected, and the other
moves of a mixture have to do the work.

Populations (sequential Monte Carlo): many particles go from a known distribution to the target.
The first particles are independent draws of q, whose probabilities are known. The path leads from
it to the target along

    π_b(x) ∝ q(x)^(1−b) · exp(−b E(x)/T),   0 = b_0 < b_1 < … < b_K = 1.

At each point the N particles are weighed by π_b_k / π_b_{k−1}, drawn again in proportion to their
weights (systematic resampling), and moved by a kernel that leaves π_b_k invariant. The weights are
those of the particles before they are moved. As q is normalised, the product over the path of the
mean weights is an unbiased estimate of Z = Σ_x exp(−E(x)/T), provided that the path does not look
at the particles: a pilot population finds it and is discarded (`maskov.tuning`).

Populations with too few moves agree with each other and are wrong. So every second one makes
several times as many: each is still unbiased, and what the longer ones find more is what the
shorter ones miss (`maskov.diagnostics.populations`).

An epoch of a run is one point of the path, and a chain is a particle; neighbouring chains make a
population, and a batch holds one or several. All parts of the energies
along the path are the same, only their weights change, so going on to the next point costs no pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch

from maskov.energies.base import Evaluation, Sum
from maskov.energies.ordered import Ordered
from maskov.errors import InputError, refuse
from maskov.kernels.base import (
    Composite,
    Kernel,
    Target,
    counted,
    leaves,
    with_leaves,
    with_tokens,
)
from maskov.kernels.metropolis import Metropolis
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Move
from maskov.random import Purpose, Rng
from maskov.types import Chains, Float, Int, PartValues, Proposal, StepInfo, Tensor


def _drawn(
    start: Ordered, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
) -> tuple[Proposal, Evaluation]:
    """Draw a sequence for each of some chains, and find its energy; the way back is unknown."""
    before = chains.sequences.rows(rows)
    chain, step = chains.chain[rows], chains.step[rows]
    tokens, found = start.drawn(scorer, before, chain, step, rng)
    proposal = Proposal(
        rows=rows,
        before=before.tokens,
        tokens=tokens,
        lengths=before.lengths,
        masked=before.scored,
        log_q_forward=-found.value,
        log_q_reverse=torch.full_like(found.value, torch.nan),
        passes=found.passes,
        evaluated=(start, found),
    )
    return proposal, found


@dataclass(frozen=True)
class Redraw(Move):
    """Propose all free positions anew from the distribution `start`; an epoch is one draw."""

    start: Ordered

    keeps_constraints = True
    local = False

    @property
    def conditional(self) -> MaskedConditional:  # type: ignore[override]
        """That of each place of a draw."""
        return self.start.conditional

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return one step, in which all positions are drawn."""
        return torch.ones_like(chains.step)

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Draw a sequence for each chain."""
        proposal, _ = _drawn(self.start, chains, rows, scorer, rng)
        old, passes = self._old(chains, rows, scorer)
        return replace(proposal, log_q_reverse=-old, passes=proposal.passes + passes)

    def _old(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer
    ) -> tuple[Float[Tensor, " n"], Int[Tensor, " n"]]:
        """Return −log q of the current sequences, which a target with the same part knows."""
        known = chains.part_values
        if known is not None and known.of is not None:
            for place, (_, part) in enumerate(known.of.parts):
                if self.start.is_part(part):
                    return known.values[rows, place], torch.zeros_like(rows)
        found = self.start.evaluate(scorer, chains.sequences.rows(rows))
        return found.value, found.passes

    def __str__(self) -> str:
        return f"draws of {self.start}"


@dataclass(frozen=True)
class Draws(Kernel):
    """Independent draws of an ordered energy: each epoch draws every free position anew."""

    energy: Ordered
    fills_blanks = True
    # Whatever stood there, the new sequence has the target's distribution.
    leaves_invariant = True

    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Keep nothing of the current tokens but their energy."""
        return replace(chains, pass_cache=None)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return one step, in which all positions are drawn."""
        return torch.ones_like(chains.step)

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Draw all free positions of the chosen chains."""
        proposal, found = _drawn(self.energy, chains, rows, scorer, rng)
        value, unknown = found.value, proposal.log_q_reverse
        everything = torch.ones_like(rows, dtype=torch.bool)
        info = StepInfo(
            proposal=proposal,
            energy_old=unknown,
            energy_new=value,
            log_ratio=unknown[:, None],
            uniform=unknown[:, None],
            log_acceptance=torch.zeros_like(value),
            accepted=everything,
            passes=found.passes,
            calls=torch.ones_like(rows)[:, None],
        )
        values = torch.cat([value[:, None], found.cells], dim=1)
        whole = torch.zeros((len(chains.chain), values.shape[1]), dtype=torch.float64)
        known = chains.part_values or PartValues(
            self.energy, whole.to(values.device), whole[:, 0].to(values.device)
        )
        known = known.put(rows, PartValues(self.energy, values, value))
        after = replace(with_tokens(chains, proposal, everything), part_values=known)
        return counted(after, rows), info

    def __str__(self) -> str:
        return f"draws({self.energy})"


@dataclass(frozen=True)
class Population(Composite):
    """Take populations of `particles` from the distribution `start` to the target of a kernel.

    `path` are the shares b of the way, rising to 1; without one the run finds it before its first
    epoch. At each point every particle makes so many `moves`, those of every second population
    (the second, the fourth) `longer` times as many. `epoch` is the point.
    """

    kernel: Kernel
    start: Ordered
    particles: int = 64
    path: tuple[float, ...] = ()
    moves: int = 1
    longer: int = 5
    epoch: int = 0

    fills_blanks = True

    def __post_init__(self) -> None:
        moved = all(isinstance(leaf, Metropolis) for leaf in leaves(self.kernel))
        rises = all(one < other for one, other in pairwise((0.0, *self.path)))
        whole = rises and all(map(math.isfinite, self.path)) and self.path[-1:] in ((), (1,))
        refuse(
            (
                self.kernel.target is None or not moved,
                f"'{self.kernel}' cannot move a population: that needs Metropolis-Hastings, or a "
                "mixture of it, with one energy.",
            ),
            (
                self.particles < 2,
                f"a population has 2 particles or more, not {self.particles}.",
            ),
            (
                self.moves < 1 or self.longer < 1,
                f"particles make 1 move or more at each point, not {self.moves}, or {self.longer} "
                "times as many.",
            ),
            (not whole, "a path has shares that rise from above 0 to 1, such as 0.2,0.5,1."),
        )
        # Draws meet the constraints that moves keep.
        start = replace(self.start, constraints=self.kernel.conditional.constraints)
        object.__setattr__(self, "start", start)

    @property
    def target(self) -> Target | None:
        """The distribution at the end of the path."""
        return self.kernel.target

    def bridge(self, share: float) -> Sum:
        """Return the energy of a point of the path; its parts are the same all along.

        Those of the target come first, then the start if it is not one of them.
        """
        assert self.target is not None
        parts = [part for _, part in self.target.energy.parts]
        weights = [
            share * weight / self.target.temperature for weight, _ in self.target.energy.parts
        ]
        place = next((n for n, part in enumerate(parts) if self.start.is_part(part)), len(parts))
        if place == len(parts):
            parts, weights = [*parts, self.start], [*weights, 0.0]
        weights[place] += 1 - share
        return Sum(tuple(zip(weights, parts, strict=True)))

    def share(self, epoch: int) -> float:
        """Return how far along the way an epoch is; before the first it is 0."""
        return 0.0 if epoch < 0 else self.path[min(epoch, len(self.path) - 1)] if self.path else 1.0

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernel that moves particles at this point of the path."""
        energy = self.bridge(self.share(self.epoch))

        def changed(leaf: Kernel) -> Kernel:
            assert isinstance(leaf, Metropolis)
            return replace(leaf.with_energy(energy), target_temperature=1.0)

        return (with_leaves(self.kernel, changed),)

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Population:
        """Return the kernel at a point of the path."""
        return replace(self, epoch=epoch)

    def first(self, chains: Chains, scorer: Scorer, rng: Rng) -> Chains:
        """Draw the first particles, and number them."""
        tokens, *_ = self.start.draw(scorer, chains.sequences, chains.chain, chains.step, rng)
        number = torch.arange(len(chains.chain), device=chains.chain.device) % self.particles
        # Draws have used the random numbers of a step.
        return replace(chains, tokens=tokens, ancestor=number, step=chains.step + 1).forget()

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Weigh the particles, and draw them again in proportion to their weights."""
        weight = self.log_weights(chains, self.share(self.epoch - 1), self.share(self.epoch))
        first = slice(None, None, self.particles)
        uniform = rng.uniform(chains.chain[first], chains.step[first], Purpose.RESAMPLE)
        index = systematic(weight.view(-1, self.particles), uniform).flatten()
        # A copy has the number of its row, and the random numbers of that.
        copies = replace(
            chains.rows(index, known=True), chain=chains.chain, step=chains.step, log_weight=weight
        )
        return super().begin(copies, rng)

    def log_weights(self, chains: Chains, one: float, other: float) -> Float[Tensor, " chains"]:
        """Return the log of the weights between two points of the path."""
        known = chains.part_values
        assert known is not None
        before, after = self.bridge(one), self.bridge(other)
        change = [
            (w - v, part) for (v, part), (w, _) in zip(before.parts, after.parts, strict=True)
        ]
        return -Sum(tuple(change)).total(known.values)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the moves at a point; a particle without free positions makes none."""
        longer = chains.chain // self.particles % 2 == 1
        return torch.where(longer, self.longer * self.moves, self.moves) * chains.free.any(1)

    @property
    def even(self) -> Population:
        """Populations that all make as many moves as these do on average."""
        return replace(self, moves=round(self.moves * (1 + self.longer) / 2), longer=1)

    def forced(self) -> Kernel:
        """Refuse: particles are weighed, so that moves must test."""
        return Kernel.forced(self)

    def with_kernels(self, kernels: tuple[Kernel, ...]) -> Kernel:
        """Return a population that is moved by another kernel."""
        return replace(self, kernel=kernels[0])

    def __str__(self) -> str:
        return f"population({self.kernel}, {self.start}, {self.particles} particles)"


def backward(kernel: Population) -> Population:
    """Return populations that go the path back, from draws of the target to the start.

    Their estimates are unbiased for 1/Z, so −log of them is an upper bound of log Z up to chance.
    That needs exact draws: the target is an ordered energy.
    """
    target = kernel.target
    if target is None or not isinstance(target.energy, Ordered) or target.temperature != 1:
        raise InputError("only an ordered energy at T = 1 has draws to go back from.")
    moving = kernel.kernel.with_energy(kernel.start)
    path = tuple(1 - share for share in reversed((0.0, *kernel.path[:-1])))
    return replace(kernel, kernel=moving, start=target.energy, path=path)


def systematic(
    log_weight: Float[Tensor, "populations particles"], uniform: Float[Tensor, " populations"]
) -> Int[Tensor, "populations particles"]:
    """Return the row that each particle becomes a copy of: every one ⌊N w⌋ or ⌈N w⌉ times.

    One uniform number decides for a population, so that the mean number of copies is N w.
    """
    populations, count = log_weight.shape
    ends = log_weight.softmax(1).cumsum(1)
    places = (torch.arange(count, device=uniform.device) + uniform[:, None]) / count
    # Rounding may leave the last sum just below 1.
    index = torch.searchsorted(ends, places.double(), right=True).clamp(max=count - 1)
    return index + count * torch.arange(populations, device=index.device)[:, None]


def effective_share(log_weight: Float[Tensor, " n"]) -> float:
    """Return the share of particles that equal weights would have for the same precision."""
    weight = log_weight.softmax(0)
    return float(1 / (len(weight) * (weight * weight).sum()))
