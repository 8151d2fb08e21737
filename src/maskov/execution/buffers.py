"""The tensors of asynchronous chains: all that a round reads and writes, in place.

There is a row for each chain and, in the fields that begin with `slot_`, one for each proposal
under test. A chain has one or more slots: further ones hold the proposals that come next if those
before them are rejected. One slot more than needed is kept at the end, where batches of fixed size
put what nobody asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from maskov.energies.stages import TestPlan
from maskov.types import Bool, Chains, Float, Int, Tensor

# `irreversible` steps are those whose reverse a truncated proposal rules out: always rejected.
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")
ENERGIES = ("energy_raw", "energy_norm", "energy_target")
# The state of a slot's test.
TESTING, REJECTED, ACCEPTED = 0, 1, 2
FREE = -1
# Of so many rounds it is remembered how much was waiting.
WAITING = 2


@dataclass
class Buffers:
    """Everything about asynchronous chains; saved and loaded as it is.

    `step` is the chain's step at the start of its epoch and `number` how many steps of the epoch
    are done. `opening` chains have yet to begin their epoch; `offered` says that a round is under
    way. `others` are the values of the energy's parts that are no masked passes. `drawn` and the
    fields after it belong to the proposal of each position in this epoch, right while `fresh`. A
    slot waits for its `slot_pending` passes and, if `slot_asks`, for other parts of the energy.
    `counts` and `rejected`, where a proposal was rejected, are those of this epoch. `waiting`
    holds, for the latest rounds, the tokens of passes in full and in low precision that were
    waiting after it, the positions that were to be drawn, and the epoch of the slowest chain.
    """

    chain: Int[Tensor, " chains"]
    source: Int[Tensor, " chains"]
    tokens: Int[Tensor, "chains length"]
    lengths: Int[Tensor, " chains"]
    free: Bool[Tensor, "chains length"]
    beta: Float[Tensor, " chains"]
    step: Int[Tensor, " chains"]
    rank: Int[Tensor, "chains length"]
    epoch: Int[Tensor, " chains"]
    number: Int[Tensor, " chains"]
    opening: Bool[Tensor, " chains"]
    offered: Bool[Tensor, ""]
    hidden: Float[Tensor, "chains length hidden"]
    logit: Float[Tensor, "chains length"]
    log_normaliser: Float[Tensor, "chains length"]
    low_term: Float[Tensor, "chains length"]
    others: Float[Tensor, "chains others"]

    fresh: Bool[Tensor, "chains length"]
    drawn: Int[Tensor, "chains length"]
    drawn_logit: Float[Tensor, "chains length"]
    log_forward: Float[Tensor, "chains length"]
    log_reverse: Float[Tensor, "chains length"]
    draw_token: Float[Tensor, "chains length"]
    draw_accept: Float[Tensor, "chains length stages"]

    slot_place: Int[Tensor, " slots"]
    slot_stage: Int[Tensor, " slots"]
    slot_verdict: Int[Tensor, " slots"]
    slot_ratio: Float[Tensor, " slots"]
    slot_acceptance: Float[Tensor, " slots"]
    slot_pending: Bool[Tensor, "slots length"]
    slot_hidden: Float[Tensor, "slots length hidden"]
    slot_logit: Float[Tensor, "slots length"]
    slot_normaliser: Float[Tensor, "slots length"]
    slot_low: Float[Tensor, "slots length"]
    slot_others: Float[Tensor, "slots others"]
    slot_asks: Bool[Tensor, " slots"]

    counts: Int[Tensor, "chains counts"]
    rejected: Bool[Tensor, "chains length"]
    ring_energy: Float[Tensor, "ring chains energies"]
    ring_counts: Int[Tensor, "ring chains counts"]
    ring_tokens: Int[Tensor, "ring chains length"]
    ring_rejected: Bool[Tensor, "ring chains length"]
    waiting: Int[Tensor, "rounds 4"]

    @classmethod
    def of(cls, state: Chains, plan: TestPlan, epoch: int, slots: int, ring: int) -> Buffers:
        """Return the buffers of chains that are about to begin an epoch, their energies known."""
        assert state.sites is not None
        stages, others = len(plan.stages), [state.energies[name] for name in plan.names]
        device = state.tokens.device
        count, length = state.tokens.shape
        rows = count * slots + 1

        def real(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        def flags(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.bool, device=device)

        sites = state.sites
        return cls(
            chain=state.chain.clone(),
            source=state.source.clone(),
            tokens=state.tokens.clone(),
            lengths=state.lengths.clone(),
            free=state.free.clone(),
            beta=state.beta.clone(),
            step=state.step.clone(),
            rank=state.rank.clone(),
            epoch=torch.full((count,), epoch, device=device),
            number=whole(count),
            opening=~flags(count),
            offered=flags(),
            hidden=sites.hidden.clone(),
            logit=sites.logit.clone(),
            log_normaliser=sites.log_normaliser.clone(),
            low_term=real(count, length),
            others=torch.stack(others, dim=1) if others else real(count, 0),
            fresh=flags(count, length),
            drawn=state.tokens.clone(),
            drawn_logit=real(count, length),
            log_forward=real(count, length),
            log_reverse=real(count, length),
            draw_token=real(count, length),
            draw_accept=real(count, length, stages),
            slot_place=torch.full((rows,), FREE, device=device),
            slot_stage=whole(rows),
            slot_verdict=whole(rows),
            slot_ratio=real(rows),
            slot_acceptance=real(rows),
            slot_pending=flags(rows, length),
            slot_hidden=sites.hidden.new_zeros((rows, *sites.hidden.shape[1:])),
            slot_logit=real(rows, length),
            slot_normaliser=real(rows, length),
            slot_low=real(rows, length),
            slot_others=real(rows, len(others)),
            slot_asks=flags(rows),
            counts=whole(count, len(COUNTS)),
            rejected=flags(count, length),
            ring_energy=real(ring, count, len(ENERGIES)),
            ring_counts=whole(ring, count, len(COUNTS)),
            ring_tokens=whole(ring, count, length),
            ring_rejected=flags(ring, count, length),
            waiting=torch.tensor([[0, 0, 0, epoch]] * WAITING, device=device),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return every buffer by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> Buffers:
        """Return the buffers that `tensors` named."""
        return cls(**tensors)
