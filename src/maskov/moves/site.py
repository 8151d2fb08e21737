"""The site move: mask one position or a block of them and draw new tokens for them.

With M the masked set, chosen without looking at the tokens, the context is the sequence without M
in both directions, so that

    q(x'|x) = Π_{i∈M} q(x'_i | x without M),    q(x|x') = Π_{i∈M} q(x_i | x without M)

and both come from the same conditionals. Positions that keep their token appear in both. A chain
that caches the masked passes of its tokens proposes single sites for free: from the pass that masks
the position alone, or its whole group (`maskov.grouping`), which does not see it either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.positions import Positions, Sweep
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Proposal, Tensor


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


@dataclass(frozen=True)
class Site(Move):
    """Resample the positions that `positions` names from the masked `conditional`.

    One position at a time is the paper's Algorithm 1; several are its block variant.
    """

    conditional: MaskedConditional = MaskedConditional()
    positions: Positions = Sweep()

    @property
    def irreversible(self) -> bool:  # type: ignore[override]
        """True if the positions are chosen by looking at the tokens."""
        return self.positions.looks_at_tokens

    @property
    def asynchronous(self) -> bool:  # type: ignore[override]
        """True for single sites whose order is known when the epoch begins."""
        return self.positions.single_sites

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """True if the first step masks everything."""
        return self.positions.looks_at_tokens

    def __init_subclass__(cls) -> None:
        # A subclass may propose by rules of its own, so it takes the lock-step path unless it says
        # otherwise.
        if "asynchronous" not in vars(cls):
            cls.asynchronous = False  # type: ignore[method-assign, assignment]

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
        masked = self.positions.masked(chains, rows, rng)
        tokens = chains.tokens[rows]
        row, place = masked.nonzero(as_tuple=True)
        hidden, passes = _conditionals(chains, rows, masked, scorer)
        chain, step = chains.chain[rows][row], chains.step[rows][row]

        def choose(probabilities: Tensor, part: slice) -> Tensor:
            return rng.categorical(
                probabilities, chain[part], step[part], Purpose.TOKEN, place[part]
            )

        drawn = draw(hidden, tokens[row, place], choose, self.conditional, scorer)
        proposed = tokens.index_put((row, place), drawn.token)
        changed = proposed != tokens
        # The model's own probability: a proposal that takes the best token is sure of every one.
        sure = (drawn.logit - drawn.log_normaliser).exp()
        nothing = torch.zeros(len(rows), dtype=torch.float64, device=tokens.device)
        return Proposal(
            rows=rows,
            masked=masked,
            tokens=proposed,
            lengths=chains.lengths[rows],
            changed=changed,
            known=changed & (changed.sum(1) == 1)[:, None],
            confidence=chains.confidence[rows].index_put((row, place), sure),
            log_q_forward=nothing.index_add(0, row, drawn.log_forward),
            log_q_reverse=nothing.index_add(0, row, drawn.log_reverse),
            passes=passes,
        )

    def __str__(self) -> str:
        return f"{self.conditional}, {self.positions}"


def draw(
    hidden: Float[Tensor, "masked hidden"],
    current: Int[Tensor, " masked"],
    choose: Callable[[Tensor, slice], Tensor],
    conditional: MaskedConditional,
    scorer: Scorer,
) -> Drawn:
    """Draw a token for each masked position; `choose` turns probabilities into tokens."""
    columns: list[tuple[Tensor, ...]] = []
    # In portions, so that scores of the whole vocabulary fit in memory.
    for begin in range(0, len(hidden), scorer.head_rows):
        part = slice(begin, begin + scorer.head_rows)
        logits = scorer.model.logits(hidden[part])
        scorer.watch(logits)
        log_q = conditional.log_probabilities(logits, scorer.model.forbidden)
        new = choose(log_q.exp(), part)
        forward = log_q.gather(1, new[:, None]).squeeze(1)
        score = logits.gather(1, new[:, None]).squeeze(1).double()
        reverse = _gathered(log_q, current[part])
        columns.append((new, forward, reverse, score, logits.logsumexp(1).double()))
    return Drawn(*(torch.cat(column) for column in zip(*columns, strict=True)))


def log_q_of(
    hidden: Float[Tensor, "masked hidden"],
    tokens: Int[Tensor, " masked"],
    conditional: MaskedConditional,
    scorer: Scorer,
) -> Float[Tensor, " masked"]:
    """Return log q of given tokens at masked positions."""
    columns = []
    parts = (torch.split(values, scorer.head_rows) for values in (hidden, tokens))
    for vectors, part in zip(*parts, strict=True):
        logits = scorer.model.logits(vectors)
        scorer.watch(logits)
        log_q = conditional.log_probabilities(logits, scorer.model.forbidden)
        columns.append(_gathered(log_q, part))
    return torch.cat(columns)


def _conditionals(
    chains: Chains, rows: Tensor, masked: Tensor, scorer: Scorer
) -> tuple[Float[Tensor, "masked hidden"], Int[Tensor, " n"]]:
    """Return the vectors of all masked positions and the passes each chain paid for them."""
    if chains.sites is None:
        cached = torch.zeros(len(rows), dtype=torch.bool, device=masked.device)
    else:
        cached = masked.sum(1) == 1
    asked = (~cached).nonzero().flatten()
    passes = torch.zeros(len(rows), dtype=torch.long, device=masked.device)
    if asked.numel() == 0 and chains.sites is not None:
        return chains.sites.hidden[rows][masked], passes
    chosen = rows[asked]
    queries = Queries(
        chains.tokens[chosen], chains.lengths[chosen], masked[asked], chains.source[chosen]
    )
    answer = scorer.hidden(queries)
    passes = passes.index_fill(0, asked, 1)
    if chains.sites is None:
        return answer, passes
    hidden = chains.sites.hidden[rows][masked]
    hidden[(~cached)[:, None].expand_as(masked)[masked]] = answer
    return hidden, passes


def _gathered(log_q: Tensor, tokens: Tensor) -> Tensor:
    """Return log q of each token; a token outside the vocabulary (the mask) has none."""
    inside = tokens < log_q.shape[1]
    found = log_q.gather(1, tokens.clamp(max=log_q.shape[1] - 1)[:, None]).squeeze(1)
    return torch.where(inside, found, -torch.inf)
