"""The site move: mask one position or a block of them and draw new tokens for them.

With M the masked set, chosen without looking at the tokens, the context is the sequence without M
in both directions, so that

    q(x'|x) = Π_{i∈M} q(x'_i | x without M),    q(x|x') = Π_{i∈M} q(x_i | x without M)

and both come from the same conditionals. Positions that keep their token appear in both. A chain
that caches the masked passes of its tokens proposes single sites for free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from maskov.errors import InputError
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.filling import Filling
from maskov.moves.positions import Positions, Sweep
from maskov.random import Rng
from maskov.types import Bool, Chains, Int, Proposal, Tensor


@dataclass(frozen=True)
class Site(Move):
    """Resample the positions that `positions` names from the masked `conditional`.

    One position at a time is the paper's Algorithm 1; several are its block variant.
    """

    keeps_constraints = True

    conditional: MaskedConditional = MaskedConditional()
    positions: Positions = Sweep()

    def __post_init__(self) -> None:
        if self.conditional.constraints and self.positions.looks_at_tokens:
            raise InputError(
                "mask-predict fills all positions at once, whatever the constraints: use another "
                "kernel, or drop them."
            )

    @property
    def irreversible(self) -> bool:  # type: ignore[override]
        """True if the positions are chosen by looking at the tokens."""
        return self.positions.looks_at_tokens

    @property
    def asynchronous(self) -> bool:  # type: ignore[override]
        """True for single sites in an order known when the epoch begins, without constraints."""
        return self.positions.single_sites and not self.conditional.constraints

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """True if the first step masks everything."""
        return self.positions.looks_at_tokens

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Rank the positions."""
        return self.positions.begin(chains, rng)

    def rank(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        free: Bool[Tensor, "n length"],
        rng: Rng,
    ) -> Int[Tensor, "n length"]:
        """Return the order of an epoch that begins at `step`, for asynchronous chains."""
        return self.positions.rank(chain, step, free, rng)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the blocks of an epoch."""
        return self.positions.steps(chains)

    def at(self, epoch: int, block: int | None) -> Site:
        """Follow the schedule's block size."""
        return replace(self, positions=self.positions.at(epoch, block))

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Mask the next block of each chain and draw it."""
        rank = self.positions.masked(chains, rows, rng).long() - 1
        return Filling(self.conditional, chains, rows, rank, scorer, rng).proposal()

    def __str__(self) -> str:
        return f"{self.conditional}, {self.positions}"
