"""The tensors of rounds: all that a round reads and writes, in place.

`Buffers` are those of any move; `SiteBuffers` add what single sites need, `WindowBuffers` what
windows need.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial

import torch

from maskov.types import Bool, Chains, Float, Int, Tensor

# `irreversible` steps are those whose reverse a truncated proposal rules out: always rejected.
COUNTS = ("accepted", "novel", "proposed_novel", "steps", "passes", "irreversible")
ENERGIES = ("energy_raw", "energy_norm", "energy_target")
# Epochs that the fastest chain may be ahead of the slowest.
AHEAD = 16
# The state of a slot's test.
TESTING, REJECTED, ACCEPTED = 0, 1, 2
FREE = -1
# The `stage` of a chain whose window is not under test: it has none, or it is filled.
IDLE, FILLING = -2, -1
# The passes that fill a window, given the new tokens and given the old ones, come last.
FILLS = 2
# Of so many rounds it is remembered how much was waiting.
WAITING = 2


@dataclass
class Buffers:
    """What is known of chains in rounds, whatever their move; saved and loaded as it is.

    `step` is the chain's step at the start of its epoch and `epoch_step` the steps of the epoch
    that are done, of `steps`. `opening` chains have yet to begin their epoch; `offered` says that a
    round is under way. `counts` and `rejected`, where a proposal was rejected, are those of this
    epoch. `waiting` holds, for the latest rounds, the tokens of passes that were waiting, the
    positions that were waiting for the head, and the epoch of the slowest chain. The fields that
    begin with `ring_` have the results of the latest epochs, and a last row that nobody reads.

    The fields that begin with `slot_` have a row for each proposal under test, which waits for its
    `slot_pending` passes. One row more than needed is kept at the end, where batches of fixed size
    put what nobody asked for.
    """

    chain: Int[Tensor, " chains"]
    source: Int[Tensor, " chains"]
    tokens: Int[Tensor, "chains length"]
    lengths: Int[Tensor, " chains"]
    free: Bool[Tensor, "chains length"]
    step: Int[Tensor, " chains"]
    steps: Int[Tensor, " chains"]
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

    slot_pending: Bool[Tensor, "slots passes"]
    slot_hidden: Float[Tensor, "slots columns hidden"]
    slot_logit: Float[Tensor, "slots columns"]
    slot_normaliser: Float[Tensor, "slots columns"]

    def tensors(self) -> dict[str, Tensor]:
        """Return every buffer by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass
class SiteBuffers(Buffers):
    """The buffers of single sites.

    `drawn` and the fields after it belong to the proposal of each position in this epoch, right
    while `fresh`. A chain has one or more slots: further ones hold the proposals that come next if
    those before them are rejected.
    """

    fresh: Bool[Tensor, "chains length"]
    drawn: Int[Tensor, "chains length"]
    drawn_logit: Float[Tensor, "chains length"]
    log_forward: Float[Tensor, "chains length"]
    log_reverse: Float[Tensor, "chains length"]

    slot_place: Int[Tensor, " slots"]
    slot_stage: Int[Tensor, " slots"]
    slot_verdict: Int[Tensor, " slots"]
    slot_ratio: Float[Tensor, " slots"]

    @classmethod
    def of(cls, state: Chains, epoch: int, slots: int, ring: int) -> SiteBuffers:
        """Return the buffers of chains that are about to begin an epoch."""
        real, whole, flags = _zeros(state)
        count, length = state.tokens.shape
        rows = count * slots + 1
        return cls(
            **_shared(state, state.free.sum(1), epoch, ring, (rows, length), (rows, length)),
            fresh=flags(count, length),
            drawn=state.tokens.clone(),
            drawn_logit=real(count, length),
            log_forward=real(count, length),
            log_reverse=real(count, length),
            slot_place=whole(rows) + FREE,
            slot_stage=whole(rows),
            slot_verdict=whole(rows),
            slot_ratio=real(rows),
        )


@dataclass
class WindowBuffers(Buffers):
    """The buffers of windows that are filled step by step; a chain has one slot.

    `window` is the order in which the positions of the new window are filled, −1 outside of it, and
    `old_window` that of the old one; where no length changes they are the same. `level` of them are
    filled in the `proposed` tokens, of `new_lengths`. Where the step changes the length, `start` is
    that of the window (−1 elsewhere), `new_free` and `new_region` what they become. `stage` is the
    test that comes next, and `ratio` that of the test before it.

    There is a pass for each position, or group of positions, and two for the next positions to
    fill, given the new tokens and given the old ones. Passes leave a vector for each position, and
    one more for that of the old tokens. `missing` are the positions whose pass nobody has run
    before the tests, `still` those whose pass saw no change; `known_from` is the first test that
    knows a position.

    `values` are those of the energy's parts that depend on lengths alone, at every length.

    Of ordered energies, `reveal` is when each of their orders reveals a position, and `terms` are
    those of each of them. Each rank of an order has a pass of its own, before those that fill.
    """

    visits: Int[Tensor, " chains"]
    region: Int[Tensor, "chains length"]
    bounds: Int[Tensor, "chains regions 2"]
    values: Float[Tensor, "chains lengths parts"]
    reveal: Int[Tensor, "chains orders length"]
    terms: Float[Tensor, "chains ordered length"]
    slot_terms: Float[Tensor, "slots ordered length"]
    ring_lengths: Int[Tensor, "ring chains"]
    ring_sizes: Int[Tensor, "ring chains regions"]

    window: Int[Tensor, "chains length"]
    old_window: Int[Tensor, "chains length"]
    level: Int[Tensor, " chains"]
    stage: Int[Tensor, " chains"]
    proposed: Int[Tensor, "chains length"]
    new_lengths: Int[Tensor, " chains"]
    new_free: Bool[Tensor, "chains length"]
    new_region: Int[Tensor, "chains length"]
    start: Int[Tensor, " chains"]
    log_forward: Float[Tensor, " chains"]
    log_reverse: Float[Tensor, " chains"]
    ratio: Float[Tensor, " chains"]
    missing: Bool[Tensor, "chains length"]
    still: Bool[Tensor, "chains length"]
    known_from: Int[Tensor, "chains length"]

    @classmethod
    def of(
        cls,
        state: Chains,
        steps: Tensor,
        epoch: int,
        ring: int,
        groups: int,
        values: Tensor,
        reveal: Tensor,
        terms: Tensor,
        experts: int = 0,
    ) -> WindowBuffers:
        """Return the buffers of chains that are about to begin an epoch of so many steps each.

        Their passes mask so many `groups` of positions.
        """
        real, whole, flags = _zeros(state)
        count, length = state.tokens.shape
        pending = (count + 1, groups + reveal.shape[1] * length + FILLS)
        return cls(
            **_shared(state, steps, epoch, ring, pending, (count + 1, length + 1), experts),
            visits=state.visits.clone(),
            region=state.region.clone(),
            bounds=state.bounds.clone(),
            values=values,
            reveal=reveal,
            terms=terms.clone(),
            slot_terms=real(count + 1, *terms.shape[1:]),
            ring_lengths=whole(ring + 1, count),
            ring_sizes=whole(ring + 1, count, state.bounds.shape[1]),
            window=whole(count, length) - 1,
            old_window=whole(count, length) - 1,
            level=whole(count),
            stage=whole(count) + IDLE,
            proposed=state.tokens.clone(),
            new_lengths=state.lengths.clone(),
            new_free=state.free.clone(),
            new_region=state.region.clone(),
            start=whole(count) - 1,
            log_forward=real(count),
            log_reverse=real(count),
            ratio=real(count),
            missing=flags(count, length),
            still=flags(count, length),
            known_from=whole(count, length),
        )


def sizes_of(
    region: Int[Tensor, "chains length"], bounds: Int[Tensor, "chains regions 2"]
) -> Int[Tensor, "chains regions"]:
    """Return how many positions each region of each chain has."""
    regions = torch.arange(bounds.shape[1], device=region.device)
    return (region[:, None, :] == regions[:, None]).sum(2)


def _zeros(state: Chains) -> list[partial[Tensor]]:
    """Return what makes empty buffers of numbers, whole numbers and flags."""
    kinds = (torch.float64, torch.long, torch.bool)
    return [partial(torch.zeros, dtype=kind, device=state.tokens.device) for kind in kinds]


def _shared(
    state: Chains,
    steps: Tensor,
    epoch: int,
    ring: int,
    pending: tuple[int, int],
    vectors: tuple[int, int],
    experts: int = 0,
) -> dict[str, Tensor]:
    """Return the fields of `Buffers` for chains that are about to begin an epoch.

    Slots have so many `pending` passes, which leave so many `vectors`.
    """
    assert state.pass_cache is not None
    real, whole, flags = _zeros(state)
    count, length = state.tokens.shape
    given = ("chain", "source", "tokens", "lengths", "free", "step", "rank")
    hidden = state.pass_cache.hidden
    return {
        **{name: getattr(state, name).clone() for name in given},
        **{name: value.clone() for name, value in state.pass_cache.tensors().items()},
        "steps": steps.clone(),
        "epoch": whole(count) + epoch,
        "epoch_step": whole(count),
        "opening": ~flags(count),
        "offered": flags(()),
        "counts": whole(count, len(COUNTS) + experts),
        "rejected": flags(count, length),
        "ring_energy": real(ring + 1, count, len(ENERGIES)),
        "ring_counts": whole(ring + 1, count, len(COUNTS) + experts),
        "ring_tokens": whole(ring + 1, count, length),
        "ring_rejected": flags(ring + 1, count, length),
        "waiting": torch.tensor([[0, 0, epoch]] * WAITING, device=state.tokens.device),
        "slot_pending": flags(pending),
        "slot_hidden": hidden.new_zeros((*vectors, hidden.shape[-1])),
        "slot_logit": real(vectors),
        "slot_normaliser": real(vectors),
    }
