"""The tensors of chains in flight: all that a round reads and writes, in place.

There is a row for each chain and, in the fields that begin with `lane_`, one for each proposal
under test. A chain has one or more lanes: further ones hold the proposals that come next if those
before them are rejected. One lane more than needed is kept at the end, where batches of fixed size
put what nobody asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from maskov.types import Bool, ChainState, Float, Int, Tensor

# `irreversible` steps are those whose way back a truncated proposal rules out: always rejected.
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")
ENERGIES = ("energy_raw", "energy_norm", "energy_target")
# What a lane's test has come to.
TESTING, REJECTED, ACCEPTED = 0, 1, 2
FREE = -1
# Of so many rounds it is remembered how much was waiting.
WAITING = 2


@dataclass
class Buffers:
    """Everything about chains in flight; saved and loaded as it is.

    `step` is the chain's step at the start of its epoch and `number` how many steps of the epoch
    are done. `opening` chains have yet to begin their epoch; `offered` says that a round is under
    way. `drawn` and the fields after it
    belong to the proposal of each position in this epoch, right while `fresh`. `counts` and
    `rejected`, where a proposal was turned down, are those of this epoch. `waiting` holds, for
    the latest rounds, the tokens of passes in full and in low precision that were waiting after
    it, the positions that were to be drawn, and the epoch of the slowest chain.
    """

    chain: Int[Tensor, " chains"]
    source: Int[Tensor, " chains"]
    tokens: Int[Tensor, "chains length"]
    lengths: Int[Tensor, " chains"]
    free: Bool[Tensor, "chains length"]
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

    fresh: Bool[Tensor, "chains length"]
    drawn: Int[Tensor, "chains length"]
    drawn_logit: Float[Tensor, "chains length"]
    log_forward: Float[Tensor, "chains length"]
    log_reverse: Float[Tensor, "chains length"]
    draw_token: Float[Tensor, "chains length"]
    draw_accept: Float[Tensor, "chains length stages"]

    lane_place: Int[Tensor, " lanes"]
    lane_stage: Int[Tensor, " lanes"]
    lane_verdict: Int[Tensor, " lanes"]
    lane_ratio: Float[Tensor, " lanes"]
    lane_acceptance: Float[Tensor, " lanes"]
    lane_pending: Bool[Tensor, "lanes length"]
    lane_hidden: Float[Tensor, "lanes length hidden"]
    lane_logit: Float[Tensor, "lanes length"]
    lane_normaliser: Float[Tensor, "lanes length"]
    lane_low: Float[Tensor, "lanes length"]

    counts: Int[Tensor, "chains counts"]
    rejected: Bool[Tensor, "chains length"]
    ring_energy: Float[Tensor, "ring chains energies"]
    ring_counts: Int[Tensor, "ring chains counts"]
    ring_tokens: Int[Tensor, "ring chains length"]
    ring_rejected: Bool[Tensor, "ring chains length"]
    pilot: Float[Tensor, "choices 2"]
    waiting: Int[Tensor, "rounds 4"]

    @classmethod
    def of(
        cls, state: ChainState, epoch: int, lanes: int, stages: int, ring: int, choices: int
    ) -> Buffers:
        """Return the buffers of chains that are about to begin an epoch, their sites known."""
        assert state.sites is not None
        device = state.tokens.device
        count, length = state.tokens.shape
        rows = count * lanes + 1

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
            fresh=flags(count, length),
            drawn=state.tokens.clone(),
            drawn_logit=real(count, length),
            log_forward=real(count, length),
            log_reverse=real(count, length),
            draw_token=real(count, length),
            draw_accept=real(count, length, stages),
            lane_place=torch.full((rows,), FREE, device=device),
            lane_stage=whole(rows),
            lane_verdict=whole(rows),
            lane_ratio=real(rows),
            lane_acceptance=real(rows),
            lane_pending=flags(rows, length),
            lane_hidden=sites.hidden.new_zeros((rows, *sites.hidden.shape[1:])),
            lane_logit=real(rows, length),
            lane_normaliser=real(rows, length),
            lane_low=real(rows, length),
            counts=whole(count, len(COUNTS)),
            rejected=flags(count, length),
            ring_energy=real(ring, count, len(ENERGIES)),
            ring_counts=whole(ring, count, len(COUNTS)),
            ring_tokens=whole(ring, count, length),
            ring_rejected=flags(ring, count, length),
            pilot=real(choices, 2),
            waiting=torch.tensor([[0, 0, 0, epoch]] * WAITING, device=device),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return every buffer by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> Buffers:
        """Return the buffers that `tensors` named."""
        return cls(**tensors)
