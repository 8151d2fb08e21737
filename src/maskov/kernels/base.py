"""A kernel moves chains; a step is three parts, so that one model call can serve many chains.

`propose` draws from what the state already holds, or from one pass that masks a block;
`evaluate` asks the engine for the masked passes the proposal needs; `accept` is pure. Kernels hold
no state: state in, `(state, info)` out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch

from maskov.execution.scorer import Engine
from maskov.kernels.ratio import accept
from maskov.moves import MaskedConditional, propose
from maskov.moves.positions import Positions
from maskov.random import Draws, Purpose
from maskov.types import Bool, ChainState, Float, Int, Proposed, Sites, StepInfo, Tensor


@dataclass(frozen=True)
class Evaluated:
    """What a kernel knows of its proposals: the log acceptance ratio and what it cost.

    `novel` lists the proposals that differ from the current sequence; `sites` and `energy`
    belong to these. All of it is absent for kernels that accept everything.
    """

    log_ratio: Float[Tensor, " n"]
    energy_old: Float[Tensor, " n"]
    energy_new: Float[Tensor, " n"]
    passes: Int[Tensor, " n"]
    novel: Int[Tensor, " m"]
    sites: Sites | None


class Kernel(ABC):
    """A way to move: where to mask, what to propose, when to accept."""

    proposal: MaskedConditional
    positions: Positions

    @property
    @abstractmethod
    def leaves_invariant(self) -> bool:
        """Whether a step leaves the kernel's target distribution unchanged."""

    @abstractmethod
    def init(self, state: ChainState, engine: Engine) -> ChainState:
        """Add to the state whatever the kernel keeps about its tokens."""

    @abstractmethod
    def evaluate(self, state: ChainState, proposed: Proposed, engine: Engine) -> Evaluated:
        """Ask for the passes the proposals need; say how their acceptance is decided."""

    @abstractmethod
    def moved(
        self, state: ChainState, proposed: Proposed, evaluated: Evaluated, accepted: Tensor
    ) -> ChainState:
        """Return the state in which the accepted proposals have taken the place of the old."""

    def step(
        self,
        state: ChainState,
        rows: Int[Tensor, " n"],
        masked: Bool[Tensor, "n length"],
        engine: Engine,
        draws: Draws,
    ) -> tuple[ChainState, StepInfo]:
        """Move the chains in `rows` once, masking `masked` in them."""
        proposed = propose(state, rows, masked, self.proposal, engine, draws)
        evaluated = self.evaluate(state, proposed, engine)
        return self.accept(state, proposed, evaluated, draws)

    def accept(
        self, state: ChainState, proposed: Proposed, evaluated: Evaluated, draws: Draws
    ) -> tuple[ChainState, StepInfo]:
        """Decide, and move the chains that accept; asks the model nothing."""
        rows = proposed.rows
        uniform = draws.uniform(state.chain[rows], state.step[rows], Purpose.ACCEPT)
        accepted = accept(evaluated.log_ratio, uniform)
        after = self.moved(state, proposed, evaluated, accepted)
        counted = after.step.index_add(0, rows, torch.ones_like(rows))
        info = StepInfo(
            proposal=proposed,
            energy_old=evaluated.energy_old,
            energy_new=evaluated.energy_new,
            log_ratio=evaluated.log_ratio,
            uniform=uniform,
            accepted=accepted,
            passes=proposed.passes + evaluated.passes,
        )
        return replace(after, step=counted), info


def with_tokens(state: ChainState, proposed: Proposed, accepted: Tensor) -> ChainState:
    """Put the accepted tokens, and how sure the model was of them, in their place."""
    taken = accepted[:, None]
    rows = proposed.rows
    tokens = torch.where(taken, proposed.tokens, state.tokens[rows])
    confidence = torch.where(taken, proposed.confidence, state.confidence[rows])
    return replace(
        state,
        tokens=state.tokens.index_copy(0, rows, tokens),
        confidence=state.confidence.index_copy(0, rows, confidence),
    )
