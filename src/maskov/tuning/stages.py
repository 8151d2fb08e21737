"""Which early tests delayed acceptance should take, by moves per masked pass.

The pilot tests its proposals in full. For every candidate it adds up the probability of acceptance
and the passes that its tests would have needed. Plain acceptance wins a near tie, since one test
accepts at least as often as several.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from maskov.energies.stages import DelayedAcceptance, near_all
from maskov.execution.loop import whole_epoch
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.metropolis import Comparison
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.tuning.pilot import metropolis_parts, with_parts
from maskov.types import Bool, Chains, Float, Int, Proposal, StepInfo, Tensor

# How many positions each early test knows; the first candidate is no early test.
CANDIDATES = (
    (), (1,), (2,), (3,), (4,), (6,), (8,), (12,), (1, 2), (1, 4), (2, 4), (2, 6), (4, 12),
    (1, 2, 4), (1, 3, 8), (2, 4, 8), (1, 2, 4, 8),
)  # fmt: skip
# What runs use that are too short for a pilot.
DEFAULT = (2,)
_WORTH = 1.1


@dataclass
class Table:
    """Expected moves and passes by candidate, and the passes of proposing, which all share."""

    moves: Float[Tensor, " candidates"] = field(
        default_factory=lambda: torch.zeros(len(CANDIDATES), dtype=torch.float64)
    )
    passes: Float[Tensor, " candidates"] = field(
        default_factory=lambda: torch.zeros(len(CANDIDATES), dtype=torch.float64)
    )

    def choose(self) -> tuple[tuple[int, ...], float]:
        """Return the best candidate and how many times more moves per pass it promises."""
        worth = torch.where(self.passes > 0, self.moves / self.passes, 0.0).nan_to_num()
        best = int(worth.argmax())
        if not worth[0] > 0 or worth[best] < _WORTH * worth[0]:
            return (), 1.0
        return CANDIDATES[best], float(worth[best] / worth[0])


@dataclass(frozen=True)
class Proposed:
    """Proposals whose energies are known in full.

    `known` is the log-ratio before any masked pass is run, `tested` whether an earlier test has
    passed by it. `falls` are old minus new terms of each position, in units of the ratio, and
    `needed` the passes that tests must run.
    """

    changed: Bool[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    needed: Bool[Tensor, "n length"]
    falls: Float[Tensor, "n length"]
    known: Float[Tensor, " n"]
    tested: bool


def expectations(
    proposed: Proposed, nearest: tuple[int, ...]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the probability of acceptance and the expected passes under some early tests."""
    free = torch.where(proposed.changed & ~proposed.needed, proposed.falls, 0.0).sum(1)
    before = proposed.known + free if proposed.tested else torch.zeros_like(proposed.known)
    log_passed, passes = torch.zeros_like(before), torch.zeros_like(before)
    done = torch.zeros_like(proposed.needed)
    for count in (*nearest, None):
        near = near_all(proposed.changed, proposed.lengths, count)
        passes = passes + log_passed.exp() * (near & proposed.needed & ~done).sum(1)
        # What needs no pass is known to every test.
        counted = near | ~proposed.needed
        ratio = proposed.known + torch.where(counted, proposed.falls, 0.0).sum(1)
        # What an earlier test cannot pass never meets this one.
        gained = torch.where(log_passed > -torch.inf, (ratio - before).clamp(max=0.0), 0.0)
        log_passed, before, done = log_passed + gained, ratio, done | near
    return log_passed.exp(), passes


@dataclass(frozen=True)
class _Measured(Metropolis):
    """Metropolis-Hastings that tests in full and fills a table."""

    table: Table = field(default_factory=Table, compare=False)

    def _test(
        self, chains: Chains, proposal: Proposal, comparison: Comparison, rng: Rng
    ) -> StepInfo:
        info = super()._test(chains, proposal, comparison, rng)
        self.table.passes += float(proposal.passes.sum())
        # A move whose reverse is impossible costs nothing in any case.
        reached = ~info.log_ratio[:, -1].isnan() & (proposal.log_q_reverse > -torch.inf)
        index = reached.nonzero().flatten()
        if index.numel():
            proposed = self._proposed(chains, proposal, comparison, index)
            for number, nearest in enumerate(CANDIDATES):
                moves, passes = expectations(proposed, nearest)
                self.table.moves[number] += float(moves.sum())
                self.table.passes[number] += float(passes.sum())
        return info

    def _proposed(
        self, chains: Chains, proposal: Proposal, comparison: Comparison, index: Tensor
    ) -> Proposed:
        falls = comparison.falls(index)
        rows = proposal.rows[index]
        beta = chains.beta[rows] / self.target_temperature
        rest = comparison.energy_old[index] - comparison.energy_new[index] - falls.sum(1)
        log_q = proposal.log_q_reverse[index] - proposal.log_q_forward[index]
        return Proposed(
            proposal.changed[index],
            proposal.lengths[index],
            comparison.needed[index],
            falls * beta[:, None],
            rest * beta + log_q,
            bool(self.plan.others),
        )


def choose_stages(
    kernel: Kernel, chains: Chains, epochs: int, scorer: Scorer, rng: Rng
) -> list[tuple[tuple[int, ...], float]]:
    """Run the chains for some epochs; return early tests and their gain for each Metropolis kernel.

    Those that state their early tests keep them.
    """
    measured = with_parts(kernel, _measured)
    for _ in range(epochs):
        chains = whole_epoch(measured, chains, scorer, rng)
    return [
        part.table.choose() if isinstance(part, _Measured) else (asked.delayed.early, 1.0)
        for part, asked in zip(metropolis_parts(measured), metropolis_parts(kernel), strict=True)
    ]


def _measured(kernel: Metropolis) -> Metropolis:
    if not undecided(kernel):
        return kernel
    return _Measured(
        kernel.energy, kernel.move, kernel.target_temperature, DelayedAcceptance(0), table=Table()
    )


def undecided(kernel: Metropolis) -> bool:
    """Whether a kernel leaves its early tests to the run."""
    wanted = kernel.energy.needs_sites and type(kernel) is Metropolis
    return wanted and kernel.delayed.nearest is None


def with_stages(kernel: Kernel, chosen: list[tuple[int, ...]]) -> Kernel:
    """Return the kernel with the chosen early tests, in the order of its Metropolis kernels."""
    rest = iter(chosen)

    def change(part: Metropolis) -> Metropolis:
        nearest = next(rest)
        if not undecided(part):
            return part
        return replace(part, delayed=replace(part.delayed, nearest=nearest))

    return with_parts(kernel, change)
