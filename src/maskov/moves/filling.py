"""Fill windows: the one way in which moves draw new tokens, and read the old ones back.

A window is a set of positions and an order of filling, chosen without looking at the tokens.
Positions of one rank are drawn from one pass, each given what stands outside the window and the
positions of lower ranks:

    q(x'|x) = Π_i q(x'_i | x outside the window, x' at lower ranks)

The reverse is the same product for the old tokens in the same window and order or, where the move
changes the length, in the old window. A single position is a window of one, a block has one rank, a
span as many ranks as positions.

A chain that caches the masked passes of its tokens has the pass of a window's last position: it
masks the position alone or its whole group (`maskov.types`), in both directions.

Under constraints positions of one rank are drawn one after the other, from left to right: which
tokens are allowed depends on those drawn so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from maskov.constraints import PartlyFilled
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves.base import MaskedConditional
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import (
    Bool,
    Chains,
    Float,
    Int,
    Proposal,
    ProposalPasses,
    Resized,
    Sequences,
    Tensor,
    inside,
    joined,
    masked_with,
)


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
class Windows:
    """Some sequences, and the rank of each position of their windows, −1 outside."""

    tokens: Int[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    rank: Int[Tensor, "n length"]


class Filling:
    """Windows of some chains on their way from the old tokens to the new ones.

    `new` are sequences whose windows are to be filled, and `resized` what becomes of the old ones,
    where the move changes the length; otherwise old and new windows are the same.
    """

    def __init__(
        self,
        conditional: MaskedConditional,
        chains: Chains,
        rows: Int[Tensor, " n"],
        rank: Int[Tensor, "n length"],
        scorer: Scorer,
        rng: Rng,
        new: Windows | None = None,
        resized: Resized | None = None,
    ) -> None:
        self._conditional, self._scorer, self._rng = conditional, scorer, rng
        self._chains, self._rows, self._resized = chains, rows, resized
        self._old = Windows(chains.tokens[rows], chains.lengths[rows], rank)
        self._new = new or self._old
        self._tokens = self._new.tokens
        self._cache = chains.pass_cache
        if (
            resized is not None
            and chains.pass_cache is not None
            and chains.pass_cache.groups is not None
        ):
            self._cache = None  # groups of positions are others once positions have moved
        self._groups = None if self._cache is None else self._cache.groups
        self._probability = torch.zeros(rank.shape, dtype=torch.float64, device=rank.device)
        zero = self._probability[:, 0]
        self._forward, self._reverse = zero, zero.clone()
        self._passes = torch.zeros_like(rows)
        self._stuck = torch.zeros_like(rows, dtype=torch.bool)
        self._passed: list[tuple[Tensor, Tensor, Tensor]] = []

    def proposal(self) -> Proposal:
        """Fill the windows, and return what became of the sequences."""
        old, new, rows, resized = self._old, self._new, self._rows, self._resized
        for number in range(int(new.rank.max()) + 1):
            self._fill(number)
        confidence = self._chains.confidence[rows]
        if resized is not None:
            for number in range(int(old.rank.max()) + 1):
                self._read_back(number)
            confidence = confidence.gather(1, resized.origin.clamp(min=0))
            # A deletion fills nothing, and may leave what breaks a constraint.
            reference = self._chains.reference[rows]
            sequences = Sequences(new.tokens, new.lengths, reference=reference)
            possible = self._conditional.possible(sequences, self._scorer.model)
            self._stuck = self._stuck | (~possible & ~(new.rank >= 0).any(1))
        passed = None
        if self._passed:
            row, place, hidden = (torch.cat(column) for column in zip(*self._passed, strict=True))
            passed = ProposalPasses(row, place, hidden, self._groups)
        return Proposal(
            rows=rows,
            before=old.tokens,
            tokens=self._tokens,
            lengths=new.lengths,
            masked=old.rank >= 0,
            log_q_forward=self._forward,
            log_q_reverse=self._reverse.masked_fill(self._stuck, -torch.inf),
            passes=self._passes,
            passed=passed,
            confidence=torch.where(new.rank >= 0, self._probability, confidence),
            resized=resized,
        )

    def _fill(self, number: int) -> None:
        """Draw the positions of one rank.

        Where the way back knows other tokens, it needs a pass of its own, which is run with these.
        """
        at, same = self._new.rank == number, self._unchanged()
        owner = at.any(1).nonzero().flatten()
        row, place = at.nonzero(as_tuple=True)
        apart = owner[~same[owner]] if number and self._resized is None else owner[:0]
        rows = torch.cat([owner, apart])
        onward = torch.arange(len(rows), device=rows.device) < len(owner)
        tokens = torch.where(onward[:, None], self._tokens[rows], self._old.tokens[rows])
        hidden = self._ask(self._new, tokens, rows, number, same[rows] | ~onward, onward)
        hidden, back = hidden[: len(row)], hidden[len(row) :]
        for index in self._turns(at, row, place):
            self._draw(number, row[index], place[index], hidden[index], back)

    def _turns(self, at: Tensor, row: Tensor, place: Tensor) -> list[Tensor]:
        """Return which of the positions of one rank are drawn at once."""
        if not self._conditional.constraints:
            return [torch.arange(len(row), device=row.device)]
        turn = (at.long().cumsum(1) - 1)[row, place]
        return [(turn == one).nonzero().flatten() for one in range(int(turn.max()) + 1)]

    def _draw(
        self,
        number: int,
        row: Int[Tensor, " n"],
        place: Int[Tensor, " n"],
        hidden: Float[Tensor, "n hidden"],
        back: Float[Tensor, "apart hidden"],
    ) -> None:
        chains, rows, old = self._chains, self._rows, self._old
        keys = chains.chain[rows][row], chains.step[rows][row], place
        current = self._new.tokens[row, place]
        partly = self._partly(self._new, self._tokens, row, place, number)
        drawn = draw(hidden, current, self._rng, keys, self._conditional, self._scorer, partly)
        if self._resized is None:
            reverse = drawn.log_reverse
            apart = (~self._unchanged()[row]).nonzero().flatten()
            if apart.numel():
                at, where = row[apart], place[apart]
                # The positions of rank 0 are read in the same pass both ways.
                back = back if number else hidden[apart]
                partly = self._partly(old, old.tokens, at, where, number)
                only = log_q_of(back, current[apart], self._conditional, self._scorer, partly)
                reverse = reverse.index_copy(0, apart, only)
            self._reverse = self._reverse.index_add(0, row, reverse)
        self._stuck = self._stuck.index_put((row,), self._stuck[row] | drawn.stuck)
        self._forward = self._forward.index_add(0, row, drawn.log_forward)
        # The model's own probability: a proposal that takes the best token is sure of every one.
        probability = (drawn.logit - drawn.log_normaliser).exp()
        self._probability = self._probability.index_put((row, place), probability)
        self._tokens = self._tokens.index_put((row, place), drawn.token)

    def _read_back(self, number: int) -> None:
        """Add log q of the old tokens of one rank, as the reverse would draw them."""
        old = self._old
        owner = (old.rank == number).any(1).nonzero().flatten()
        place = (old.rank[owner] == number).int().argmax(1)
        same = torch.ones_like(owner, dtype=torch.bool)
        hidden = self._ask(old, old.tokens[owner], owner, number, same, ~same)
        partly = self._partly(old, old.tokens, owner, place, number)
        current = old.tokens[owner, place]
        log_q = log_q_of(hidden, current, self._conditional, self._scorer, partly)
        self._reverse = self._reverse.index_add(0, owner, log_q)

    def _unchanged(self) -> Bool[Tensor, " n"]:
        """Return where all that was drawn so far is what stood there."""
        if self._resized is not None:
            return torch.zeros_like(self._stuck)
        return (self._tokens == self._old.tokens).all(1)

    def _masked(
        self, windows: Windows, owner: Int[Tensor, " n"], number: int, last: Bool[Tensor, " n"]
    ) -> Bool[Tensor, "n length"]:
        """Return what the passes of one rank mask; the last ones what those of the cache do."""
        rank = windows.rank[owner]
        held = inside(windows.lengths[owner], rank.shape[1])
        alone = masked_with((rank == number).int().argmax(1), held, self._groups)
        return torch.where(last[:, None], alone, rank >= number)

    def _partly(
        self, windows: Windows, tokens: Tensor, row: Tensor, place: Tensor, number: int
    ) -> PartlyFilled | None:
        """Describe windows that are filled up to some places to the constraints."""
        if not self._conditional.constraints:
            return None
        rank, position = windows.rank[row], torch.arange(tokens.shape[1], device=place.device)
        unfilled = (rank > number) | ((rank == number) & (position >= place[:, None]))
        reference = self._chains.reference[self._rows]
        sequences = Sequences(tokens, windows.lengths, reference=reference).rows(row)
        return self._conditional.filling(sequences, unfilled, place, self._scorer.model)

    def _ask(
        self,
        windows: Windows,
        tokens: Int[Tensor, "n length"],
        owner: Int[Tensor, " n"],
        number: int,
        same: Bool[Tensor, " n"],
        onward: Bool[Tensor, " n"],
    ) -> Float[Tensor, "places hidden"]:
        """Return the vectors at the positions of one rank.

        The last pass of tokens that are the `same` as the chain's is the chain's own. Other last
        ones that go `onward` are remembered: they are passes of the finished proposal.
        """
        wanted = windows.rank[owner] == number
        last = (windows.rank[owner] >= number).sum(1) == 1
        masked, cached = self._masked(windows, owner, number, last), last & same
        row, place = wanted.nonzero(as_tuple=True)
        known = None
        if self._cache is not None:
            known = self._cache.hidden[self._rows[owner][row], place]
        else:
            cached = torch.zeros_like(cached)
        asked = (~cached).nonzero().flatten()
        if known is not None and not asked.numel():
            return known
        chosen = owner[asked]
        source = self._chains.source[self._rows]
        answers = self._scorer.hidden(
            Queries(tokens[asked], windows.lengths[chosen], masked[asked], source[chosen])
        )
        query, at = masked[asked].nonzero(as_tuple=True)
        ends = (last & onward)[asked][query]
        self._passed.append((chosen[query][ends], at[ends], answers[ends]))
        # A pass may mask more than the positions that it is run for.
        answers = answers[wanted[asked][query, at]]
        self._passes = self._passes.index_add(0, chosen, torch.ones_like(asked))
        others = ((~cached)[row].nonzero().flatten(),)
        return answers if known is None else known.index_put(others, answers)


def draw(
    hidden: Float[Tensor, "masked hidden"],
    current: Int[Tensor, " masked"],
    rng: Rng,
    keys: tuple[Tensor, Tensor, Tensor],
    conditional: MaskedConditional,
    scorer: Scorer,
    filling: PartlyFilled | None = None,
) -> Drawn:
    """Draw a token for each masked position.

    The numbers are those of the chains, steps and places that are its `keys`. `filling` is what
    constraints are asked about, if there are some.
    """
    chain, step, place = keys
    # Other generators need the probabilities of all tokens, which the kernel does not return.
    if hidden.is_cuda and conditional.only_tempers and type(rng) is CounterRng:
        uniform = rng.uniform(chain, step, Purpose.TOKEN, place)
        read = scorer.read(hidden, current, conditional.temperature, uniform)
        if read is not None:
            token, forward, reverse, logit, log_normaliser, _ = read
            return Drawn(
                token, forward, reverse, logit, log_normaliser,
                stuck=torch.zeros_like(current, dtype=torch.bool),
            )  # fmt: skip
    columns: list[tuple[Tensor, ...]] = []
    for part, logits, log_q, stuck in portions(hidden, conditional, scorer, filling):
        new = rng.categorical(log_q.exp(), chain[part], step[part], Purpose.TOKEN, place[part])
        forward = log_q.gather(1, new[:, None]).squeeze(1)
        score = logits.gather(1, new[:, None]).squeeze(1).double()
        reverse = _gathered(log_q, current[part], stuck)
        columns.append((new, forward, reverse, score, logits.logsumexp(1).double(), stuck))
    return Drawn(*map(joined, zip(*columns, strict=True)))


def log_q_of(
    hidden: Float[Tensor, "masked hidden"],
    tokens: Int[Tensor, " masked"],
    conditional: MaskedConditional,
    scorer: Scorer,
    filling: PartlyFilled | None = None,
) -> Float[Tensor, " masked"]:
    """Return log q of given tokens at masked positions; `filling` is that of `draw`."""
    if conditional.only_tempers:
        read = scorer.read(hidden, tokens, conditional.temperature)
        if read is not None:
            _, _, log_q, *_ = read
            return log_q
    found = portions(hidden, conditional, scorer, filling)
    return joined([_gathered(log_q, tokens[part], stuck) for part, _, log_q, stuck in found])


def portions(
    hidden: Float[Tensor, "masked hidden"],
    conditional: MaskedConditional,
    scorer: Scorer,
    filling: PartlyFilled | None,
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Yield portions so small that scores of the whole vocabulary fit in memory.

    Each with its logits, log q of all tokens under the constraints, and where these allow none.
    """
    for begin in range(0, len(hidden), scorer.model.head_rows):
        part = slice(begin, begin + scorer.model.head_rows)
        logits = scorer.model.logits(hidden[part])
        # The maximum of a row with NaN is NaN; `isnan` of all scores would take longer.
        scorer.track_nan(logits.amax(1))
        allowed, stuck = None, torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        if filling is not None:
            place = torch.arange(len(hidden), device=hidden.device)[part]
            allowed = conditional.allowed(filling.rows(place), scorer.model)
            stuck = ~allowed.any(1)
            # Drawn all the same, so that all numbers are numbers.
            allowed = allowed | stuck[:, None]
        log_q = conditional.log_probabilities(logits, scorer.model.forbidden, allowed)
        yield part, logits, log_q, stuck


def _gathered(log_q: Tensor, tokens: Tensor, stuck: Tensor) -> Tensor:
    """Return log q of each token; what is stuck or outside the vocabulary (the mask) has none."""
    size = log_q.shape[1]
    found = log_q.gather(1, tokens.clamp(max=size - 1)[:, None]).squeeze(1)
    return found.masked_fill(stuck | (tokens >= size), -torch.inf)
