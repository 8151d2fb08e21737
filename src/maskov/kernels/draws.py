"""Draws of an ordered energy: alone they are independent, as proposals they are tested.

An ordered energy (`maskov.energies.ordered`) is −log q of a distribution that can be drawn from.
`Draws` is the kernel whose target is q itself. `Redraw` is the move that proposes a draw, whatever
stands there (an independence sampler):

    q(x'|x) = q(x'),    q(x|x') = q(x).

A chain forgets its sequence whenever it accepts. Where the target is q(x) exp(−λ E(x)) with a small
λ, q cancels in the test, a good share is accepted, and chains of free sentences converge, which
moves of a few places at a time do not. Far from q nearly every draw is rejected, and the other
moves of a mixture have to do the work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from maskov.energies.ordered import Ordered
from maskov.kernels.base import Kernel, counted, with_tokens
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Move
from maskov.random import Rng
from maskov.types import Chains, Float, Int, PartValues, Proposal, StepInfo, Tensor


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
        before = chains.sequences.rows(rows)
        chain, step = chains.chain[rows], chains.step[rows]
        tokens, found = self.start.drawn(scorer, before, chain, step, rng)
        old, passes = self._old(chains, rows, scorer)
        return Proposal(
            rows=rows,
            before=before.tokens,
            tokens=tokens,
            lengths=before.lengths,
            masked=before.scored,
            log_q_forward=-found.value,
            log_q_reverse=-old,
            passes=found.passes + passes,
            evaluated=(self.start, found),
        )

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

    @property
    def leaves_invariant(self) -> bool:
        """Always: whatever stood there, the new sequence has the target's distribution."""
        return True

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
        before = chains.sequences.rows(rows)
        chain, step = chains.chain[rows], chains.step[rows]
        tokens, found = self.energy.drawn(scorer, before, chain, step, rng)
        value, unknown = found.value, torch.full_like(found.value, torch.nan)
        proposal = Proposal(
            rows=rows,
            before=before.tokens,
            tokens=tokens,
            lengths=before.lengths,
            masked=before.scored,
            log_q_forward=-value,
            log_q_reverse=unknown,
            passes=found.passes,
        )
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
        after = with_tokens(chains, proposal, everything)
        known = known.put(rows, PartValues(self.energy, values, value))
        return counted(replace(after, part_values=known), rows), info

    def __str__(self) -> str:
        return f"draws({self.energy})"
