"""The tensors of asynchronous chains: all that a round reads and writes, in place.

`ChainBuffers` are those of any move; `Buffers` add what single sites need, and `SpanBuffers`
(`span_buffers.py`) what windows need.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from maskov.energies.stages import AcceptanceStages
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
class ChainBuffers:
    """What is known of asynchronous chains, whatever their move; saved and loaded as it is.

    `step` is the chain's step at the start of its epoch and `epoch_step` the steps of the epoch
    that are done. `opening` chains have yet to begin their epoch; `offered` says that a round
    is under way. `counts` and `rejected`, where a proposal was rejected, are those of this
    epoch. `waiting` holds, for the latest rounds, the tokens of passes that were waiting, the
    positions that were waiting for the head, and the epoch of the slowest chain.
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
    epoch_step: Int[Tensor, " chains"]
    opening: Bool[Tensor, " chains"]
    offered: Bool[Tensor, ""]
    hidden: Float[Tensor, "chains length hidden"]
    logit: Float[Tensor, "chains length"]
    log_normaliser: Float[Tensor, "chains length"]

    counts: Int[Tensor, "chains counts"]
    rejected: Bool[Tensor, "chains length"]
    ring_energy: Float[Tensor, "ring chains energies"]
    ring_counts: Int[Tensor, "ring chains counts"]
    ring_tokens: Int[Tensor, "ring chains length"]
    ring_rejected: Bool[Tensor, "ring chains length"]
    waiting: Int[Tensor, "rounds 3"]

    def tensors(self) -> dict[str, Tensor]:
        """Return every buffer by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass
class Buffers(ChainBuffers):
    """The buffers of single sites.

    `drawn` and the fields after it belong to the proposal of each position in this epoch, right
    while `fresh`. The fields that begin with `slot_` have a row for each proposal under test. A
    chain has one or more slots: further ones hold the proposals that come next if those before them
    are rejected. One slot more than needed is kept at the end, where batches of fixed size put what
    nobody asked for. A slot waits for its `slot_pending` passes.
    """

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

    @classmethod
    def of(
        cls, state: Chains, plan: AcceptanceStages, epoch: int, slots: int, ring: int
    ) -> Buffers:
        """Return the buffers of chains that are about to begin an epoch, their energies known."""
        assert state.pass_cache is not None
        zeros = Zeros(state.tokens.device)
        count, length = state.tokens.shape
        rows, hidden = count * slots + 1, state.pass_cache.hidden
        return cls(
            **chain_buffers(state, epoch, ring),
            fresh=zeros.flags(count, length),
            drawn=state.tokens.clone(),
            drawn_logit=zeros.real(count, length),
            log_forward=zeros.real(count, length),
            log_reverse=zeros.real(count, length),
            draw_token=zeros.real(count, length),
            draw_accept=zeros.real(count, length, len(plan.stages)),
            slot_place=zeros.whole(rows) + FREE,
            slot_stage=zeros.whole(rows),
            slot_verdict=zeros.whole(rows),
            slot_ratio=zeros.real(rows),
            slot_acceptance=zeros.real(rows),
            slot_pending=zeros.flags(rows, length),
            slot_hidden=hidden.new_zeros((rows, *hidden.shape[1:])),
            slot_logit=zeros.real(rows, length),
            slot_normaliser=zeros.real(rows, length),
        )


@dataclass(frozen=True)
class Zeros:
    """Makes empty buffers on a device."""

    device: torch.device

    def real(self, *shape: int) -> Tensor:
        """Return numbers."""
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def whole(self, *shape: int) -> Tensor:
        """Return whole numbers."""
        return torch.zeros(shape, dtype=torch.long, device=self.device)

    def flags(self, *shape: int) -> Tensor:
        """Return flags that are false."""
        return torch.zeros(shape, dtype=torch.bool, device=self.device)


def chain_buffers(state: Chains, epoch: int, ring: int) -> dict[str, Tensor]:
    """Return the fields of `ChainBuffers` for chains that are about to begin an epoch."""
    assert state.pass_cache is not None
    zeros = Zeros(state.tokens.device)
    count, length = state.tokens.shape
    return {
        "chain": state.chain.clone(),
        "source": state.source.clone(),
        "tokens": state.tokens.clone(),
        "lengths": state.lengths.clone(),
        "free": state.free.clone(),
        "beta": state.beta.clone(),
        "step": state.step.clone(),
        "rank": state.rank.clone(),
        "epoch": zeros.whole(count) + epoch,
        "epoch_step": zeros.whole(count),
        "opening": ~zeros.flags(count),
        "offered": zeros.flags(),
        "hidden": state.pass_cache.hidden.clone(),
        "logit": state.pass_cache.logit.clone(),
        "log_normaliser": state.pass_cache.log_normaliser.clone(),
        "counts": zeros.whole(count, len(COUNTS)),
        "rejected": zeros.flags(count, length),
        "ring_energy": zeros.real(ring, count, len(ENERGIES)),
        "ring_counts": zeros.whole(ring, count, len(COUNTS)),
        "ring_tokens": zeros.whole(ring, count, length),
        "ring_rejected": zeros.flags(ring, count, length),
        "waiting": torch.tensor([[0, 0, epoch]] * WAITING, device=state.tokens.device),
    }
