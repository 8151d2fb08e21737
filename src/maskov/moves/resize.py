"""The resize move: a window of neighbours gives way to one of another size.

From 0 to 1 tokens is an insertion, from 1 to 0 a deletion. A pair of sizes (k, l), a region, the
place of the window and an order of filling for every size are drawn without looking at the tokens;
the l new positions are filled one after the other, each given those before it, and the reverse is
the product for the k old ones:

    q(x'|x) = Π_j q(x'_{o_j} | x outside the window, x'_{o_1}, …, x'_{o_{j−1}}),   j = 1 … l

Pairs (k, l) and (l, k) are equally probable. A region of m positions has m − k + 1 windows of size
k, and m' − l + 1 of size l after the move, which is the same number, so that the choice of the
window cancels. A move that would leave the bounds of its region, or finds no window, stays where it
is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.constraints import PartlyFilled
from maskov.errors import InputError
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.site import draw
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, PassedSites, Proposal, Resized, Sequences, Tensor

# What the numbers of a step are drawn for, beside the keys of the orders.
_PAIR, _REGION, _PLACE, _KEYS = 0, 1, 2, 3
INSERT_DELETE = ((0, 1),)
WINDOWS = ((1, 2), (2, 3), (1, 3))


@dataclass(frozen=True)
class Resize(Move):
    """Replace a window by one of another size; `pairs` of sizes are taken both ways, evenly."""

    keeps_constraints = True

    conditional: MaskedConditional = MaskedConditional()
    pairs: tuple[tuple[int, int], ...] = INSERT_DELETE

    def __post_init__(self) -> None:
        if not self.pairs or any(not 0 <= less < more for less, more in self.pairs):
            raise InputError("a window is resized from fewer to more positions, as in (0, 1).")

    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Draw a window and its new size for each chain, and fill it."""
        if not chains.resizable:
            raise InputError("the lengths of these chains are fixed: no window can be resized.")
        plan = _Plan.of(self, chains, rows, scorer.model.mask_id, rng)
        return _Resizing(self.conditional, chains, rows, plan, scorer, rng).proposal()

    def __str__(self) -> str:
        pairs = ",".join(f"{less}:{more}" for less, more in self.pairs)
        return f"{self.conditional}, windows of {pairs}"


@dataclass(frozen=True)
class _Plan:
    """The windows of some chains: what was drawn without looking at the tokens.

    The window of `old` positions at `start` gives way to one of `new`; both are 0 where the move
    stays where it is. `tokens`, `lengths` and `resized` are the sequences with the new window
    masked. `old_rank` and `new_rank` are the orders of filling, −1 outside the windows.
    """

    old: Int[Tensor, " n"]
    tokens: Int[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    resized: Resized
    old_rank: Int[Tensor, "n length"]
    new_rank: Int[Tensor, "n length"]

    @classmethod
    def of(cls, move: Resize, chains: Chains, rows: Tensor, mask_id: int, rng: Rng) -> _Plan:
        chain, step = chains.chain[rows], chains.step[rows]
        device, width = rows.device, chains.tokens.shape[1]

        def uniform(index: int) -> Float[Tensor, " n"]:
            return rng.uniform(chain, step, Purpose.POSITION, torch.full_like(chain, index))

        # Which way is part of the proposal: its probability is the same both ways.
        ways = [pair for less, more in move.pairs for pair in ((less, more), (more, less))]
        evenly = torch.full((len(rows), len(ways)), 1 / len(ways), dtype=torch.float64)
        way = rng.categorical(
            evenly.to(device), chain, step, Purpose.POSITION, torch.full_like(chain, _PAIR)
        )
        old, new = torch.tensor(ways, device=device)[way].unbind(1)
        regions = chains.bounds.shape[1]
        chosen = (uniform(_REGION) * regions).long()
        region = chains.region[rows]
        mine = region == chosen[:, None]
        held = mine.sum(1)
        least, most = chains.bounds[rows, chosen].unbind(1)
        fits = (old <= held) & (held - old + new >= least) & (held - old + new <= most)
        old, new = old * fits, new * fits
        first = mine.int().argmax(1)
        start = first + (uniform(_PLACE) * (held - old + 1)).long()
        position = torch.arange(width, device=device).expand(len(rows), width)
        lengths = chains.lengths[rows] - old + new
        # Tokens after the window move by the difference of the sizes.
        after = position >= (start + new)[:, None]
        window = (position >= start[:, None]) & ~after
        origin = torch.where(after, position + (old - new)[:, None], position)
        origin = origin.masked_fill(window | (position >= lengths[:, None]), -1)
        back = origin.clamp(min=0)

        def moved(values: Tensor, otherwise: Tensor | int | bool) -> Tensor:
            return torch.where(origin >= 0, values[rows].gather(1, back), otherwise)

        resized = Resized(
            changes=fits,
            free=moved(chains.free, False) | window,
            region=torch.where(window, chosen[:, None], moved(chains.region, -1)),
            origin=origin,
            removed=(position >= start[:, None]) & (position < (start + old)[:, None]),
            start=start,
            size=new,
        )
        keys = [[uniform(_KEYS + size * (size - 1) // 2 + j) for j in range(size)]
                for size in range(max(more for _, more in move.pairs) + 1)]  # fmt: skip
        return cls(
            old,
            moved(chains.tokens, mask_id),
            lengths,
            resized,
            _ranks(start, old, keys, width),
            _ranks(start, new, keys, width),
        )


def _ranks(
    start: Int[Tensor, " n"], size: Int[Tensor, " n"], keys: list[list[Tensor]], width: int
) -> Int[Tensor, "n length"]:
    """Return the order of filling windows; it depends on the size alone, so both ways agree."""
    rank = torch.full((len(start), width), -1, device=start.device)
    for held, columns in enumerate(keys):
        if not held:
            continue
        order = torch.stack(columns, dim=1).argsort(dim=1, stable=True).argsort(dim=1)
        row = (size == held).nonzero().flatten()
        place = start[row, None] + torch.arange(held, device=start.device)
        rank[row[:, None], place] = order[row]
    return rank


class _Resizing:
    """New windows on their way to be filled, and old ones read back."""

    def __init__(
        self,
        conditional: MaskedConditional,
        chains: Chains,
        rows: Int[Tensor, " n"],
        plan: _Plan,
        scorer: Scorer,
        rng: Rng,
    ) -> None:
        self._conditional, self._chains, self._rows = conditional, chains, rows
        self._plan, self._scorer, self._rng = plan, scorer, rng
        self._passes = torch.zeros_like(rows)
        self._passed: list[tuple[Tensor, Tensor, Tensor]] = []
        # Proposals for which constraints have left no token somewhere.
        self._stuck = torch.zeros_like(rows, dtype=torch.bool)
        if conditional.constraints:
            self._stuck = self._closes_badly()

    def proposal(self) -> Proposal:
        """Return the proposed sequences."""
        plan, chains, rows = self._plan, self._chains, self._rows
        tokens, sure, forward = self._fill()
        reverse = self._read_back()
        origin = plan.resized.origin
        confidence = chains.confidence[rows].gather(1, origin.clamp(min=0))
        window = plan.new_rank >= 0
        passed = None
        if self._passed:
            row, place, hidden = (torch.cat(column) for column in zip(*self._passed, strict=True))
            passed = PassedSites(row, place, hidden)
        return Proposal(
            rows=rows,
            masked=plan.old_rank >= 0,
            tokens=tokens,
            lengths=plan.lengths,
            changed=window,
            known=torch.zeros_like(window),
            confidence=torch.where(window, sure, confidence),
            log_q_forward=forward,
            log_q_reverse=reverse.masked_fill(self._stuck, -torch.inf),
            passes=self._passes,
            passed=passed,
            resized=plan.resized,
        )

    def _fill(self) -> tuple[Tensor, Tensor, Float[Tensor, " n"]]:
        """Fill the new windows; return the tokens, how sure the model was, and log q."""
        plan, size = self._plan, self._plan.resized.size
        tokens, log_q = plan.tokens, self._zeros()
        sure = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
        for number in range(int(size.max())):
            row = (size > number).nonzero().flatten()
            place = (plan.new_rank[row] == number).int().argmax(1)
            masked = plan.new_rank[row] >= number
            hidden = self._ask(row, place, masked, tokens, plan.lengths)
            chain, step = self._chains.chain[self._rows][row], self._chains.step[self._rows][row]

            def choose(
                probabilities: Tensor, part: slice, chain: Tensor = chain,
                step: Tensor = step, place: Tensor = place,
            ) -> Tensor:  # fmt: skip
                return self._rng.categorical(
                    probabilities, chain[part], step[part], Purpose.TOKEN, place[part]
                )

            # What stands there is the mask, whose own probability does not matter.
            drawn = draw(
                hidden, tokens[row, place], choose, self._conditional, self._scorer,
                self._partly(row, place, masked, tokens, plan.lengths),
            )  # fmt: skip
            self._stuck = self._stuck.index_put((row,), self._stuck[row] | drawn.stuck)
            tokens = tokens.index_put((row, place), drawn.token)
            log_q = log_q.index_add(0, row, drawn.log_forward)
            sure = sure.index_put((row, place), (drawn.logit - drawn.log_normaliser).exp())
            last = size[row] == number + 1
            if last.any():
                # This pass masks one place of the finished proposal.
                self._passed.append((row[last], place[last], hidden[last]))
        return tokens, sure, log_q

    def _read_back(self) -> Float[Tensor, " n"]:
        """Return log q of the old windows, as the reverse would fill them."""
        plan, chains = self._plan, self._chains
        tokens, lengths, log_q = (
            chains.tokens[self._rows],
            chains.lengths[self._rows],
            self._zeros(),
        )
        for number in range(int(plan.old.max())):
            row = (plan.old > number).nonzero().flatten()
            place = (plan.old_rank[row] == number).int().argmax(1)
            masked = plan.old_rank[row] >= number
            hidden = self._ask(row, place, masked, tokens, lengths, own=True)
            drawn = draw(
                hidden, tokens[row, place], lambda p, _: p.argmax(1), self._conditional,
                self._scorer, self._partly(row, place, masked, tokens, lengths),
            )  # fmt: skip
            log_q = log_q.index_add(0, row, drawn.log_reverse)
        return log_q

    def _closes_badly(self) -> Bool[Tensor, " n"]:
        """Return where a deletion, which fills nothing, leaves what breaks a constraint."""
        plan, reference = self._plan, self._chains.reference[self._rows]
        sequences = Sequences(plan.tokens, plan.lengths, reference=reference)
        possible = self._conditional.possible(sequences, self._scorer.model)
        return ~possible & (plan.resized.size == 0)

    def _partly(
        self, row: Tensor, place: Tensor, unfilled: Tensor, tokens: Tensor, lengths: Tensor
    ) -> PartlyFilled | None:
        """Describe windows that are filled so far to the constraints."""
        sequences = Sequences(tokens, lengths, reference=self._chains.reference[self._rows])
        return self._conditional.filling(sequences.rows(row), unfilled, place, self._scorer.model)

    def _zeros(self) -> Float[Tensor, " n"]:
        return torch.zeros(len(self._rows), dtype=torch.float64, device=self._rows.device)

    def _ask(
        self,
        row: Int[Tensor, " n"],
        place: Int[Tensor, " n"],
        masked: Tensor,
        tokens: Tensor,
        lengths: Tensor,
        own: bool = False,
    ) -> Float[Tensor, "n hidden"]:
        """Return the vectors at the places; passes of the chain's `own` sequence may be cached."""
        sites, source = self._chains.sites, self._chains.source[self._rows]
        if sites is not None and sites.groups is not None:
            sites = None  # its passes mask other positions, too
        known = None if sites is None else sites.hidden[self._rows[row], place]
        cached = (masked.sum(1) == 1) & own & (known is not None)
        asked = (~cached).nonzero().flatten()
        if not asked.numel() and known is not None:
            return known
        queries = Queries(
            tokens[row[asked]], lengths[row[asked]], masked[asked], source[row[asked]]
        )
        answers = self._scorer.hidden(queries)
        # Of all masked places of a query only one is wanted.
        inside, at = masked[asked].nonzero(as_tuple=True)
        answers = answers[at == place[asked][inside]]
        self._passes = self._passes.index_add(0, row[asked], torch.ones_like(asked))
        return answers if known is None else known.index_copy(0, asked, answers)
