"""The site move: mask one position or a block of them and draw new tokens for them.

With M the masked set, chosen without looking at the tokens, the context is the sequence without M
in both directions, so that

    q(x'|x) = Π_{i∈M} q(x'_i | x without M),    q(x|x') = Π_{i∈M} q(x_i | x without M)

and both come from the same conditionals. Positions that keep their token appear in both. A chain
that caches the masked passes of its tokens proposes single sites for free: from the pass that masks
the position alone, or its whole group (`maskov.grouping`), which does not see it either.

Under constraints the positions of a block are drawn one after the other, from the same
conditionals: which tokens are allowed depends on those drawn so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from maskov.constraints import PartlyFilled
from maskov.errors import InputError
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.positions import Positions, Sweep
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Proposal, Sequences, Tensor


@dataclass(frozen=True)
class Drawn:
    """New tokens for some masked positions, and what the model says of them.

    `log_forward` and `log_reverse` are log q of the new token and of the one that stands there;
    `logit` is the raw score of the new token and `log_normaliser` the log-sum-exp of all. `stuck`
    marks where constraints allow no token; a proposal that was stuck anywhere must be rejected.
    """

    token: Int[Tensor, " masked"]
    log_forward: Float[Tensor, " masked"]
    log_reverse: Float[Tensor, " masked"]
    logit: Float[Tensor, " masked"]
    log_normaliser: Float[Tensor, " masked"]
    stuck: Bool[Tensor, " masked"]


@dataclass(frozen=True)
class Site(Move):
    """Resample the positions that `positions` names from the masked `conditional`.

    One position at a time is the paper's Algorithm 1; several are its block variant.
    """

    keeps_constraints = True

    conditional: MaskedConditional = MaskedConditional()
    positions: Positions = Sweep()

    def __post_init__(self) -> None:
        if self.conditional.constraints and self.positions.looks_at_tokens:
            raise InputError(
                "mask-predict fills all positions at once, whatever the constraints: use another "
                "kernel, or drop them."
            )

    @property
    def irreversible(self) -> bool:  # type: ignore[override]
        """True if the positions are chosen by looking at the tokens."""
        return self.positions.looks_at_tokens

    @property
    def asynchronous(self) -> bool:  # type: ignore[override]
        """True for single sites in an order known when the epoch begins, without constraints."""
        return self.positions.single_sites and not self.conditional.constraints

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """True if the first step masks everything."""
        return self.positions.looks_at_tokens

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

        if self.conditional.constraints:
            drawn = self._in_turn(chains, rows, masked, hidden, scorer, rng)
        else:
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

    def _in_turn(
        self,
        chains: Chains,
        rows: Int[Tensor, " n"],
        masked: Bool[Tensor, "n length"],
        hidden: Float[Tensor, "masked hidden"],
        scorer: Scorer,
        rng: Rng,
    ) -> Drawn:
        """Draw the masked positions of each chain from left to right, under the constraints."""
        old = Sequences(chains.tokens[rows], chains.lengths[rows], reference=chains.reference[rows])
        new = old.tokens
        every_row, every_place = masked.nonzero(as_tuple=True)
        turn = masked.long().cumsum(1) - 1
        parts, order = list[Drawn](), list[Tensor]()
        for number in range(int(masked.sum(1).max())):
            index = (turn[every_row, every_place] == number).nonzero().flatten()
            row, place = every_row[index], every_place[index]
            left = (masked & (turn >= number))[row]
            chain, step = chains.chain[rows][row], chains.step[rows][row]

            def choose(
                probabilities: Tensor, part: slice, chain: Tensor = chain,
                step: Tensor = step, place: Tensor = place,
            ) -> Tensor:  # fmt: skip
                return rng.categorical(
                    probabilities, chain[part], step[part], Purpose.TOKEN, place[part]
                )

            current, at = old.tokens[row, place], replace(old, tokens=new).rows(row)
            drawn = draw(
                hidden[index], current, choose, self.conditional, scorer,
                self.conditional.filling(at, left, place, scorer.model),
            )  # fmt: skip
            # The reverse fills by the old tokens, which may allow others.
            reverse = drawn.log_reverse
            if number:
                back = self.conditional.filling(old.rows(row), left, place, scorer.model)
                reverse = log_q_of(hidden[index], current, self.conditional, scorer, back)
            reverse = reverse.masked_fill(drawn.stuck, -torch.inf)
            new = new.index_put((row, place), drawn.token)
            parts.append(replace(drawn, log_reverse=reverse))
            order.append(index)
        back_to = torch.cat(order).argsort()
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Drawn(*(torch.cat(column)[back_to] for column in columns))

    def __str__(self) -> str:
        return f"{self.conditional}, {self.positions}"


def draw(
    hidden: Float[Tensor, "masked hidden"],
    current: Int[Tensor, " masked"],
    choose: Callable[[Tensor, slice], Tensor],
    conditional: MaskedConditional,
    scorer: Scorer,
    filling: PartlyFilled | None = None,
) -> Drawn:
    """Draw a token for each masked position; `choose` turns probabilities into tokens.

    `filling` is what constraints are asked about, if there are some.
    """
    columns: list[tuple[Tensor, ...]] = []
    # In portions, so that scores of the whole vocabulary fit in memory.
    for begin in range(0, len(hidden), scorer.model.head_rows):
        part = slice(begin, begin + scorer.model.head_rows)
        logits = scorer.model.logits(hidden[part])
        scorer.watch(logits)
        log_q, stuck = _restricted(logits, conditional, scorer, filling, part)
        new = choose(log_q.exp(), part)
        forward = log_q.gather(1, new[:, None]).squeeze(1)
        score = logits.gather(1, new[:, None]).squeeze(1).double()
        reverse = _gathered(log_q, current[part]).masked_fill(stuck, -torch.inf)
        columns.append((new, forward, reverse, score, logits.logsumexp(1).double(), stuck))
    return Drawn(*(torch.cat(column) for column in zip(*columns, strict=True)))


def log_q_of(
    hidden: Float[Tensor, "masked hidden"],
    tokens: Int[Tensor, " masked"],
    conditional: MaskedConditional,
    scorer: Scorer,
    filling: PartlyFilled | None = None,
) -> Float[Tensor, " masked"]:
    """Return log q of given tokens at masked positions; `filling` is that of `draw`."""
    columns = []
    for begin in range(0, len(hidden), scorer.model.head_rows):
        part = slice(begin, begin + scorer.model.head_rows)
        logits = scorer.model.logits(hidden[part])
        scorer.watch(logits)
        log_q, stuck = _restricted(logits, conditional, scorer, filling, part)
        columns.append(_gathered(log_q, tokens[part]).masked_fill(stuck, -torch.inf))
    return torch.cat(columns)


def _restricted(
    logits: Float[Tensor, "n vocabulary"],
    conditional: MaskedConditional,
    scorer: Scorer,
    filling: PartlyFilled | None,
    part: slice,
) -> tuple[Float[Tensor, "n vocabulary"], Bool[Tensor, " n"]]:
    """Return log q of all tokens under the constraints, and where these allow none."""
    allowed, stuck = None, torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    if filling is not None:
        allowed = conditional.allowed(filling.rows(part), scorer.model)
        stuck = ~allowed.any(1)
        # Drawn all the same, so that all numbers are numbers.
        allowed = allowed | stuck[:, None]
    return conditional.log_probabilities(logits, scorer.model.forbidden, allowed), stuck


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
