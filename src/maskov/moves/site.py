"""The first part of every step: mask some positions together and draw new tokens for them.

With M the masked set, chosen without looking at the tokens, the context is the sequence without M
in both directions, so that

    q(x'|x) = Π_{i∈M} q(x'_i | x without M),    q(x|x') = Π_{i∈M} q(x_i | x without M)

and both come from the same conditionals. Positions that keep their token appear in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.execution.scorer import Engine
from maskov.models.base import Queries
from maskov.moves.conditional import MaskedConditional
from maskov.random import Draws, Purpose, categorical
from maskov.types import Bool, ChainState, Float, Int, Proposed, Tensor


@dataclass(frozen=True)
class Drawn:
    """New tokens for some masked positions, and what the model says of them.

    `log_forward` and `log_reverse` are log q of the new token and of the one that stands there;
    `logit` is the raw score of the new token and `log_normaliser` the log-sum-exp of all.
    """

    token: Int[Tensor, " masked"]
    log_forward: Float[Tensor, " masked"]
    log_reverse: Float[Tensor, " masked"]
    logit: Float[Tensor, " masked"]
    log_normaliser: Float[Tensor, " masked"]


def draw(
    hidden: Float[Tensor, "masked hidden"],
    current: Int[Tensor, " masked"],
    uniform: Float[Tensor, " masked"],
    proposal: MaskedConditional,
    engine: Engine,
) -> Drawn:
    """Draw a token for each masked position by its own uniform number."""
    columns: list[tuple[Tensor, ...]] = []
    # The same cut for all three, so that scores of the whole vocabulary fit in memory.
    for part, old, chance in zip(
        *(torch.split(column, engine.head_rows) for column in (hidden, current, uniform)),
        strict=True,
    ):
        logits = engine.model.logits(part)
        engine.watch(logits)
        log_q = proposal.log_probabilities(logits, engine.model.forbidden)
        new = categorical(log_q.exp(), chance)
        forward = log_q.gather(1, new[:, None]).squeeze(1)
        score = logits.gather(1, new[:, None]).squeeze(1).double()
        columns.append((new, forward, _log_q_of(log_q, old), score, logits.logsumexp(1).double()))
    return Drawn(*(torch.cat(column) for column in zip(*columns, strict=True)))


def propose(
    state: ChainState,
    rows: Int[Tensor, " n"],
    masked: Bool[Tensor, "n length"],
    proposal: MaskedConditional,
    engine: Engine,
    draws: Draws,
) -> Proposed:
    """Draw a proposal for each of the chains in `rows`, masking `masked` in them."""
    tokens = state.tokens[rows]
    row, place = masked.nonzero(as_tuple=True)
    hidden, passes = _conditionals(state, rows, masked, engine)
    current = tokens[row, place]
    uniform = draws.uniform(state.chain[rows][row], state.step[rows][row], Purpose.TOKEN, place)
    drawn = draw(hidden, current, uniform, proposal, engine)
    proposed = tokens.index_put((row, place), drawn.token)
    # The model's own probability: a proposal that takes the best token is sure of every one.
    sure = (drawn.logit - drawn.log_normaliser).exp()
    nothing = torch.zeros(len(rows), dtype=torch.float64, device=tokens.device)
    return Proposed(
        rows=rows,
        masked=masked,
        tokens=proposed,
        changed=proposed != tokens,
        confidence=state.confidence[rows].index_put((row, place), sure),
        log_q_forward=nothing.index_add(0, row, drawn.log_forward),
        log_q_reverse=nothing.index_add(0, row, drawn.log_reverse),
        passes=passes,
    )


def _conditionals(
    state: ChainState, rows: Tensor, masked: Tensor, engine: Engine
) -> tuple[Float[Tensor, "masked hidden"], Int[Tensor, " n"]]:
    """Return the vectors of all masked positions and the passes each chain paid for them.

    A chain that keeps the masked passes of its tokens has its single-site conditionals already.
    """
    if state.sites is None:
        kept = torch.zeros(len(rows), dtype=torch.bool, device=masked.device)
    else:
        kept = masked.sum(1) == 1
    asked = (~kept).nonzero().flatten()
    passes = torch.zeros(len(rows), dtype=torch.long, device=masked.device)
    if asked.numel() == 0 and state.sites is not None:
        return state.sites.hidden[rows][masked], passes
    chosen = rows[asked]
    tokens, lengths, source = state.tokens[chosen], state.lengths[chosen], state.source[chosen]
    answer = engine.hidden(Queries(tokens, lengths, masked[asked], source))
    passes = passes.index_fill(0, asked, 1)
    if state.sites is None:
        return answer, passes
    hidden = state.sites.hidden[rows][masked]
    hidden[(~kept)[:, None].expand_as(masked)[masked]] = answer
    return hidden, passes


def _log_q_of(log_q: Tensor, tokens: Tensor) -> Tensor:
    """Return log q of each token; a token outside the vocabulary (the mask) has none."""
    inside = tokens < log_q.shape[1]
    found = log_q.gather(1, tokens.clamp(max=log_q.shape[1] - 1)[:, None]).squeeze(1)
    return torch.where(inside, found, -torch.inf)
