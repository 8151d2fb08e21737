"""The tensors of asynchronous chains that propose windows (`async_spans.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from maskov.execution.buffers import ChainBuffers, Zeros, chain_buffers
from maskov.types import Bool, Chains, Float, Int, Tensor

# The `stage` of a chain whose proposal is not under test: it has none, or its window is filled.
IDLE, FILLING = -2, -1
# The passes that fill a window come after those of the proposal's positions.
FILLS = 2


@dataclass
class SpanBuffers(ChainBuffers):
    """The buffers of windows that are filled one position after the other.

    `steps` are those of an epoch. `window` is the order in which the positions of the window are
    filled, −1 outside of it; `level` of them are filled in the `proposed` tokens. `stage` is the
    test that comes next, and `ratio` that of the test before it. A proposal waits for its `pending`
    passes: one column for each position, and two for the next position to fill, given the new
    tokens and given the old ones. What they gave is in the fields that begin with `new_`. `missing`
    are the positions whose pass nobody has run before the tests. One row more than there are chains
    is kept at the end, where batches of fixed size put what nobody asked for.
    """

    steps: Int[Tensor, " chains"]
    window: Int[Tensor, "chains length"]
    level: Int[Tensor, " chains"]
    stage: Int[Tensor, " chains"]
    proposed: Int[Tensor, "chains length"]
    log_forward: Float[Tensor, " chains"]
    log_reverse: Float[Tensor, " chains"]
    ratio: Float[Tensor, " chains"]
    missing: Bool[Tensor, "chains length"]
    pending: Bool[Tensor, "proposals columns"]
    new_hidden: Float[Tensor, "proposals columns hidden"]
    new_logit: Float[Tensor, "proposals columns"]
    new_normaliser: Float[Tensor, "proposals columns"]

    @classmethod
    def of(cls, state: Chains, epoch: int, steps: Tensor, ring: int) -> SpanBuffers:
        """Return the buffers of chains that are about to begin an epoch of so many steps each."""
        assert state.pass_cache is not None
        zeros, hidden = Zeros(state.tokens.device), state.pass_cache.hidden
        count, length = state.tokens.shape
        shape = (count + 1, length + FILLS)
        return cls(
            **chain_buffers(state, epoch, ring),
            steps=steps.clone(),
            window=zeros.whole(count, length) - 1,
            level=zeros.whole(count),
            stage=zeros.whole(count) + IDLE,
            proposed=state.tokens.clone(),
            log_forward=zeros.real(count),
            log_reverse=zeros.real(count),
            ratio=zeros.real(count),
            missing=zeros.flags(count, length),
            pending=zeros.flags(*shape),
            new_hidden=hidden.new_zeros((*shape, hidden.shape[-1])),
            new_logit=zeros.real(*shape),
            new_normaliser=zeros.real(*shape),
        )
