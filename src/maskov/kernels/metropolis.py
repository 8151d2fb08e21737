"""Metropolis-Hastings with the masked conditional as proposal: the paper's Algorithm 1, exactly.

    a(x'; x) = min(1, exp((E(x) − E(x'))/T) · q(x|x') / q(x'|x))

A block of several positions is the same algorithm with a larger mask. What makes it affordable:

- a proposal equal to the current sequence needs no energy: it is accepted as it stands;
- E(x) is kept with the chain and never computed again;
- where one token changed, the masked pass at its place did not see it: T − 1 passes, not T;
- those passes are also the next single-site proposals, so proposing costs none.

`step` is the plain algorithm, all chains in lock-step. Runs of single sites go through
`maskov.execution.asynchronous`, which makes the same decisions with each chain at its own pace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from maskov.energies.base import Energy
from maskov.energies.stages import Delayed
from maskov.errors import InputError
from maskov.execution.scorer import Engine
from maskov.kernels.base import Evaluated, Kernel, with_tokens
from maskov.moves import MaskedConditional
from maskov.moves.positions import Positions, Sweep
from maskov.types import ChainState, Proposed, Sequences, Sites, Tensor


@dataclass(frozen=True)
class Metropolis(Kernel):
    """Sample from p(x) ∝ exp(−E(x)/T), single sites or blocks."""

    energy: Energy
    proposal: MaskedConditional = MaskedConditional()
    positions: Positions = Sweep()
    target_temperature: float = 1.0
    delayed: Delayed = Delayed()

    def __post_init__(self) -> None:
        if self.proposal.temperature == 0:
            raise InputError(
                "a proposal temperature of 0 cannot be reversed, so 'mh' cannot use it; "
                "use a positive --temperature, or --kernel gibbs."
            )
        if not self.target_temperature > 0:
            raise InputError(
                f"the target temperature must be above 0, not {self.target_temperature}."
            )
        if self.delayed.asked_for and not self.flows:
            raise InputError(
                "delayed acceptance tests single sites, in random or left-to-right order, by an "
                "energy that sums over them (raw, norm and their sums): drop --delayed and "
                "--first-stage, or --block and the rest."
            )

    @property
    def flows(self) -> bool:
        """Whether chains of this kernel can go each at its own pace."""
        # Only what is known to do nothing else: a subclass may accept by rules of its own.
        return (
            type(self) is Metropolis
            and self.energy.sums_over_sites
            and type(self.positions) is Sweep
            and self.positions.block == 1
            and self.positions.order != "replacement"
        )

    @property
    def leaves_invariant(self) -> bool:
        """True unless the positions are chosen by looking at the tokens."""
        return not self.positions.looks_at_tokens

    def init(self, state: ChainState, engine: Engine) -> ChainState:
        """Run the masked passes of the current tokens, where the energy needs them."""
        sites = state.sites
        if self.energy.needs_sites and sites is None:
            sites = engine.sites(state.sequences, self.energy.needs_normaliser)
        energy = self.energy(engine.model, replace(state.sequences, sites=sites))
        engine.watch(energy)
        if bool(energy.isinf().any()):
            raise InputError(
                "a chain would start at a sequence of probability zero, where no move can be "
                "judged; start it elsewhere."
            )
        return replace(state, sites=sites, energy=energy)

    def evaluate(self, state: ChainState, proposed: Proposed, engine: Engine) -> Evaluated:
        """Compute the energies of the proposals that differ."""
        if state.energy is None:
            raise InputError("the chains were not initialised: call the kernel's `init` first.")
        if self.delayed.asked_for:
            raise InputError("delayed acceptance happens in runs; a single step tests at once.")
        rows = proposed.rows
        old = state.energy[rows]
        novel = proposed.changed.any(1).nonzero().flatten()
        passes = torch.zeros_like(rows)
        if not novel.numel():
            return Evaluated(torch.zeros_like(old), old, old, passes, novel, None)
        chains = rows[novel]
        new_ones = Sequences(
            proposed.tokens[novel], state.lengths[chains], source=state.source[chains]
        )
        sites: Sites | None = None
        if self.energy.needs_sites and state.sites is not None:
            sites, cost = self._sites(state, proposed, novel, new_ones, engine)
            passes = passes.index_copy(0, novel, cost)
        energy = self.energy(engine.model, replace(new_ones, sites=sites))
        engine.watch(energy)
        new = old.index_copy(0, novel, energy)
        log_ratio = (
            (old - new) / self.target_temperature + proposed.log_q_reverse - proposed.log_q_forward
        )
        # A proposal equal to the current sequence is accepted whatever rounding says of its q.
        unchanged = ~proposed.changed.any(1)
        return Evaluated(log_ratio.masked_fill(unchanged, 0.0), old, new, passes, novel, sites)

    def _sites(
        self,
        state: ChainState,
        proposed: Proposed,
        novel: Tensor,
        new_ones: Sequences,
        engine: Engine,
    ) -> tuple[Sites, Tensor]:
        """Return the sites of the novel proposals and the passes each of them needed."""
        assert state.sites is not None
        chains, changed, tokens = proposed.rows[novel], proposed.changed[novel], new_ones.tokens
        known = state.sites.rows(chains)
        # The pass that masks the only changed position is the same before and after.
        single = changed & (changed.sum(1) == 1)[:, None]
        row, place = single.nonzero(as_tuple=True)
        if row.numel():
            score = engine.model.logit_of(known.hidden[row, place], tokens[row, place])
            engine.watch(score)
            known = replace(known, logit=known.logit.index_put((row, place), score.double()))
        needed = state.inside[chains] & ~single
        beside = replace(new_ones, sites=known)
        sites = engine.sites(beside, self.energy.needs_normaliser, needed)
        return sites, needed.sum(1)

    def moved(
        self, state: ChainState, proposed: Proposed, evaluated: Evaluated, accepted: Tensor
    ) -> ChainState:
        """Take the accepted tokens with their sites and energies."""
        after = with_tokens(state, proposed, accepted)
        assert state.energy is not None
        energy = torch.where(accepted, evaluated.energy_new, evaluated.energy_old)
        after = replace(after, energy=state.energy.index_copy(0, proposed.rows, energy))
        if evaluated.sites is None or state.sites is None:
            return after
        kept = accepted[evaluated.novel].nonzero().flatten()
        chains = proposed.rows[evaluated.novel[kept]]
        return replace(after, sites=state.sites.put(chains, evaluated.sites.rows(kept)))

    def __str__(self) -> str:
        return f"mh({self.energy}, {self.proposal}, {self.positions})"
