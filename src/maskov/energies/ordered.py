"""Energies that are normalised: the model's own fill of a masked sequence, one place at a time.

    E(x) = −Σ_k log p(x_σ(k) | x_σ(1), …, x_σ(k−1), the rest masked)

The softmax is over the tokens that may be sampled. Whatever the order σ is, as long as it does not
look at tokens that are still masked, exp(−E) adds up to 1 over all sequences of one length: E is
−log p of a distribution from which independent draws cost one pass a place. Frozen places count as
revealed from the start, so a template's blanks have their own normalised distribution.

Three things keep it normalised and change what it is: `groups` reveals every position t of a group
(t mod B) in one pass, each independent of the others; `temperature` cools each conditional; the
rule `confident` reveals the place next where the model is surest of a token. With several `orders`
it is the mixture of as many random orders, −log of the mean of their probabilities. Under
`constraints` each place takes only tokens with which they can still be met, and what adds up to 1
are the sequences that meet them.

The term of a place depends on what was revealed before it alone. So where a sequence changed, the
terms of all places before the first change stay, and only the rest is run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch

from maskov.constraints import Constraint
from maskov.energies.base import Energy, Evaluation
from maskov.errors import InputError, refuse
from maskov.models.base import MaskedModel, Queries
from maskov.models.scorer import Scorer
from maskov.moves.base import MaskedConditional
from maskov.moves.filling import portions
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Bool, Float, Int, Sequences, Tensor

ORDERS = ("random", "left-to-right", "right-to-left")
MOST_ORDERS = 1024
# A place that is not scored, because it is frozen or beyond the end.
_GIVEN = -1
# The rank of a place before the rule has reached it: later than any.
_LATER = 2**30


@dataclass(frozen=True)
class Ordered(Energy):
    """−log p of a sequence whose places are revealed one after the other in a fixed order.

    `order` is random (which one follows from the `seed` and the length), left-to-right or
    right-to-left. Places may be revealed in `groups`, by a `rule` that looks at what is revealed,
    or in a mixture of several random `orders`.
    """

    order: str = "random"
    seed: int = 0
    groups: int | None = None
    temperature: float = 1.0
    rule: str | None = None
    orders: int = 1
    constraints: tuple[Constraint, ...] = ()

    cost = 8.0

    def __post_init__(self) -> None:
        def whole(value: object, least: int) -> bool:
            return type(value) is int and value >= least

        refuse(
            (
                self.order not in ORDERS,
                f"the order '{self.order}' is unknown; use {', '.join(ORDERS)}.",
            ),
            (
                self.rule not in (None, "confident"),
                f"the rule '{self.rule}' is unknown; the only one is 'confident'.",
            ),
            (
                not (whole(self.seed, 0) and whole(self.orders, 1) and self.orders <= MOST_ORDERS),
                f"ordered takes a seed of 0 or more and 1 to {MOST_ORDERS} orders.",
            ),
            (
                self.groups is not None and not whole(self.groups, 1),
                f"an energy has 1 group of positions or more, not {self.groups}.",
            ),
            (
                type(self.temperature) not in (int, float) or not 0 < self.temperature < math.inf,
                f"the temperature must be above 0, not {self.temperature}.",
            ),
        )
        refuse(
            (
                self.rule is not None
                and (self.order != "random" or self.groups or self.orders > 1),
                "a rule chooses the order: drop the order, groups and orders.",
            ),
            (
                self.orders > 1 and self.order != "random",
                "a mixture has random orders: drop the order, or orders.",
            ),
            (
                self.constraints and self.groups,
                "constraints need one place after the other: drop the groups.",
            ),
        )

    @property
    def conditional(self) -> MaskedConditional:
        """The distribution of each place."""
        return MaskedConditional(float(self.temperature), constraints=self.constraints)

    @property
    def fixed(self) -> bool:
        """Whether places are revealed one by one, in one order that looks at no token."""
        return self.rule is None and self.groups is None and self.orders == 1

    def ranks(self, sequences: Sequences) -> Int[Tensor, "n length"]:
        """Return when each place is revealed in the first order; −1: it is given."""
        return self._rank(sequences, 0)

    def cells(self, width: int) -> int:
        """Return how many numbers chains remember of a sequence that is padded to a width.

        They are the terms of all orders; by a rule, the rank of each place, too.
        """
        return width * (self.orders if self.rule is None else 2)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return −log p of each sequence, from nothing."""
        return self.evaluate(Scorer(model), sequences).value

    def evaluate(
        self,
        scorer: Scorer,
        sequences: Sequences,
        known: Float[Tensor, "n cells"] | None = None,
        changed: Bool[Tensor, "n length"] | None = None,
    ) -> Evaluation:
        """Return −log p; terms before the first `changed` place are taken from the `known` ones."""
        sequences = sequences.with_tokens(sequences.tokens)  # without the vectors that chains cache
        if known is None or changed is None:
            known, changed = None, torch.ones_like(sequences.tokens, dtype=torch.bool)
        if self.rule is not None:
            return self._by_rule(scorer, sequences, known, changed)
        width = sequences.tokens.shape[1]
        found, passes = list[Tensor](), torch.zeros_like(sequences.lengths)
        for number in range(self.orders):
            before = None if known is None else known[:, number * width : (number + 1) * width]
            rank = self._rank(sequences, number)
            terms, spent = self._terms(scorer, sequences, rank, before, changed)
            found.append(terms)
            passes = passes + spent
        each = torch.stack([terms.sum(1) for terms in found], dim=1)
        value = math.log(self.orders) - (-each).logsumexp(1) if self.orders > 1 else each[:, 0]
        return Evaluation(value, torch.cat(found, dim=1), passes)

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return −log p of each place, which a mixture of orders does not have."""
        if self.orders > 1:
            raise InputError(f"the energy '{self}' has no terms for positions.")
        return self.evaluate(Scorer(model), sequences).cells[:, : sequences.tokens.shape[1]]

    def draw(
        self, scorer: Scorer, sequences: Sequences, chain: Tensor, step: Tensor, rng: Rng
    ) -> tuple[Int[Tensor, "n length"], Float[Tensor, "n cells"] | None, Int[Tensor, " n"]]:
        """Draw every free place of some sequences, whatever stands there.

        Return the tokens, what `evaluate` would remember of them, if it is known, and the passes.
        """
        scorer.forget()
        free = sequences.scored
        rank = (
            self._drawn_rank(sequences, chain, step, rng)
            if self.rule is None
            else torch.full_like(sequences.tokens, _LATER).masked_fill(~free, _GIVEN)
        )

        def choose(logs: Tensor, row: Tensor, place: Tensor) -> Tensor:
            return rng.categorical(logs.exp(), chain[row], step[row], Purpose.TOKEN, place)

        terms = torch.zeros(rank.shape, dtype=torch.float64, device=rank.device)
        tokens, passes = self._reveal(scorer, sequences, free, rank, terms, choose)
        if self.rule is not None:
            terms = torch.cat([terms, rank.double()], dim=1)
        return tokens, terms if self.orders == 1 else None, passes

    def drawn(
        self, scorer: Scorer, sequences: Sequences, chain: Tensor, step: Tensor, rng: Rng
    ) -> tuple[Int[Tensor, "n length"], Evaluation]:
        """Draw every free place of some sequences; return also what the energy of the draws is."""
        tokens, cells, passes = self.draw(scorer, sequences, chain, step, rng)
        if cells is None:  # a mixture: the other orders are still to be asked
            whole = self.evaluate(scorer, sequences.with_tokens(tokens))
            return tokens, replace(whole, passes=whole.passes + passes)
        return tokens, Evaluation(cells[:, : tokens.shape[1]].sum(1), cells, passes)

    def _drawn_rank(self, sequences: Sequences, chain: Tensor, step: Tensor, rng: Rng) -> Tensor:
        """Return the order of each draw: of a mixture, one of its orders drawn at random."""
        if self.orders == 1:
            return self._rank(sequences, 0)
        even = torch.full((len(chain), self.orders), 1 / self.orders, dtype=torch.float64)
        number = rng.categorical(even.to(chain.device), chain, step, Purpose.ORDER)
        every = torch.stack([self._rank(sequences, one) for one in range(self.orders)])
        return every[number, torch.arange(len(chain), device=chain.device)]

    def _rank(self, sequences: Sequences, number: int) -> Int[Tensor, "n length"]:
        """Return when each place is revealed, without a look at any token; −1: it is given."""
        free, lengths = sequences.scored, sequences.lengths
        if self.groups is None:
            key = self._keys(lengths, free.shape[1], number)
        else:
            group = torch.arange(free.shape[1], device=free.device) % self.groups
            key = self._keys(torch.full_like(lengths, self.groups), self.groups, number)[:, group]
        if self.order == "right-to-left":
            key = -key
        # Equal keys, those of one group, have one rank.
        sorted_, place = torch.where(free, key, torch.inf).sort(dim=1)
        new = torch.cat([torch.zeros_like(free[:, :1]), sorted_[:, 1:] != sorted_[:, :-1]], dim=1)
        return torch.zeros_like(place).scatter(1, place, new.cumsum(1)).masked_fill(~free, _GIVEN)

    def _keys(self, size: Int[Tensor, " n"], width: int, number: int) -> Float[Tensor, "n width"]:
        """Return a number for each place, by which places are put in order."""
        position = torch.arange(width, device=size.device).repeat(len(size), 1)
        if self.order != "random":
            return position.double()
        size = size[:, None].expand(position.shape).flatten()
        rng, which = CounterRng(self.seed), torch.full_like(size, number)
        return rng.uniform(which, size, Purpose.ORDER, position.flatten()).view(position.shape)

    def _terms(
        self,
        scorer: Scorer,
        sequences: Sequences,
        rank: Int[Tensor, "n length"],
        known: Float[Tensor, "n length"] | None,
        changed: Bool[Tensor, "n length"],
    ) -> tuple[Float[Tensor, "n length"], Int[Tensor, " n"]]:
        """Run the passes of all ranks from that of the first changed place on, in full batches."""
        scored = rank >= 0
        first = rank.masked_fill(~(changed & scored), _LATER).amin(1)
        again = scored & (rank >= first[:, None])
        terms = torch.zeros(rank.shape, dtype=torch.float64, device=rank.device)
        if known is not None:
            terms = torch.where(scored & ~again, known, terms)
        passes = (rank.amax(1) - first + 1).clamp(min=0)
        row = torch.arange(len(rank), device=rank.device).repeat_interleave(passes)
        if not row.numel():
            return terms, passes
        number = (
            torch.arange(len(row), device=row.device)
            - (passes.cumsum(0) - passes)[row]
            + first[row]
        )
        now = rank[row]
        hidden = now >= number[:, None]
        asked = sequences.rows(row)
        masked = asked.tokens.masked_fill(hidden, scorer.model.mask_id)
        next_ = now == number[:, None]
        token, before = asked.tokens[next_], scorer.passes
        picked = self._logs(scorer, asked.with_tokens(masked), next_, token)
        pass_, place = next_.nonzero(as_tuple=True)
        # Another part with the same order may just have run the same passes.
        passes = passes if scorer.passes > before else torch.zeros_like(passes)
        return terms.index_put((row[pass_], place), -picked), passes

    def _logs(
        self,
        scorer: Scorer,
        sequences: Sequences,
        next_: Bool[Tensor, "n length"],
        token: Int[Tensor, " places"] | None = None,
    ) -> Tensor:
        """Return log p at the next places: of every token, or of a given one for each."""
        row, place = next_.nonzero(as_tuple=True)
        partly = self.conditional.filling(
            sequences.rows(row), torch.zeros_like(next_[row]), place, scorer.model
        )
        queries = Queries(sequences.tokens, sequences.lengths, next_, sequences.source)
        vectors, found = scorer.hidden_once(queries), list[Tensor]()
        for part, _, logs, stuck in portions(vectors, self.conditional, scorer, partly):
            if partly is not None and bool(stuck.any()):
                raise InputError(
                    "the constraints together left no token for a place, so that draws under "
                    "them are not normalised: drop one of them, or --particles."
                )
            found.append(logs if token is None else logs.gather(1, token[part, None])[:, 0])
        return torch.cat(found)

    def _surest(
        self, scorer: Scorer, sequences: Sequences, hidden: Bool[Tensor, "n length"]
    ) -> tuple[Bool[Tensor, "n length"], Float[Tensor, "n vocabulary"]]:
        """Return the masked place where some token is most probable, and log p of all tokens."""
        logs = self._logs(scorer, sequences, hidden)
        row, place = hidden.nonzero(as_tuple=True)
        best = torch.full(hidden.shape, -torch.inf, dtype=torch.float64, device=hidden.device)
        best[row, place] = logs.amax(1)
        next_ = torch.zeros_like(hidden).scatter(1, best.argmax(1, keepdim=True), True)
        return next_, logs[next_[row, place]]

    def _reveal(
        self,
        scorer: Scorer,
        sequences: Sequences,
        masked: Bool[Tensor, "n length"],
        rank: Int[Tensor, "n length"],
        terms: Float[Tensor, "n length"],
        choose: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> tuple[Int[Tensor, "n length"], Int[Tensor, " n"]]:
        """Reveal masked places step by step; return the tokens and how many passes it took.

        `choose` returns their tokens, given log p of all tokens, the sequence and the place of
        each. Their terms, and by a rule their ranks, are written into `terms` and `rank`.
        """
        tokens = sequences.tokens.masked_fill(masked, scorer.model.mask_id)
        hidden, number = masked.clone(), (sequences.scored & ~masked).sum(1)
        passes = torch.zeros_like(sequences.lengths)
        while bool((waiting := hidden.any(1)).any()):
            rows = waiting.nonzero().flatten()
            now = sequences.rows(rows).with_tokens(tokens[rows])
            if self.rule is None:
                next_ = rank[rows] == number[rows, None]
                logs = self._logs(scorer, now, next_)
            else:
                next_, logs = self._surest(scorer, now, hidden[rows])
            index, place = next_.nonzero(as_tuple=True)
            row = rows[index]
            token = choose(logs, row, place)
            tokens[row, place], rank[row, place] = token, number[row]
            terms[row, place] = -logs.gather(1, token[:, None])[:, 0]
            hidden[row, place] = False
            number[rows] += 1
            passes[rows] += 1
        return tokens, passes

    def _by_rule(
        self,
        scorer: Scorer,
        sequences: Sequences,
        known: Float[Tensor, "n cells"] | None,
        changed: Bool[Tensor, "n length"],
    ) -> Evaluation:
        """Reveal place after place, from the first step that came to a changed place on."""
        free, width = sequences.scored, sequences.tokens.shape[1]
        rank = torch.full_like(sequences.tokens, _LATER).masked_fill(~free, _GIVEN)
        terms = torch.zeros(rank.shape, dtype=torch.float64, device=rank.device)
        if known is not None:
            old = known[:, width:].long()
            first = old.masked_fill(~(changed & free), _LATER).amin(1, keepdim=True)
            stays = free & (old < first)
            rank = torch.where(stays, old, rank)
            terms = torch.where(stays, known[:, :width], terms)

        _, passes = self._reveal(
            scorer, sequences, rank == _LATER, rank, terms,
            lambda logs, row, place: sequences.tokens[row, place],
        )  # fmt: skip
        return Evaluation(terms.sum(1), torch.cat([terms, rank.double()], dim=1), passes)

    def is_part(self, other: Energy) -> bool:
        """Whether both are one; constraints, which have no text, make another distribution."""
        return self == other

    def __str__(self) -> str:
        """Return what `parse_energy` reads: every argument that is not the usual one."""
        given = [] if self.order == "random" else [self.order]
        for one in fields(self)[1:-1]:  # constraints are those of a run
            value = getattr(self, one.name)
            if value != one.default:
                given.append(f"{one.name}={value!r}".replace("'", ""))
        return f"ordered({', '.join(given)})" if given else "ordered"
