"""Blanks of templates: the sizes that they may have, and fills of them by the model itself.

A fill is drawn, or searched, one place after the other: each token by the model's conditional given
the places before it, the others masked. So the probability q of a draw is known.

Where the length is unknown, the text around the blank tells it: revealed token by token while all
blanks stay masked, it has a probability at each length. If the fill is revealed last, this is the
sum over all fills of the probability of text and fill together: no fill has to be found for it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from maskov.constraints.base import Constraint, continues
from maskov.energies.counting import LengthPrior
from maskov.errors import refuse
from maskov.models.base import MaskedModel, Queries
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.random import CounterRng, Purpose
from maskov.texts import ONE, Gap, read_template
from maskov.types import Float, Int, Sequences, Tensor

# Lengths that the blanks of a template may have together.
MOST_SHAPES = 128
# Tokens on either side of a blank that tell its length; more tell no more (results/restoration).
REACH = 8
# Temperatures of draws, and how many of the draws have each.
_HEATS, _SHARES = (1.0, 2.0, 8.0), (0.5, 0.25, 0.25)
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """A template with blanks of given sizes: masked tokens, the places of each blank, log w(n).

    `gaps` bound the characters of each blank, where something does. `context` is −log p of the text
    around blanks of unknown length.
    """

    tokens: Int[Tensor, " length"]
    blanks: tuple[tuple[int, ...], ...]
    log_prior: float = 0.0
    gaps: tuple[Gap, ...] = ()
    context: float = 0.0

    @property
    def places(self) -> list[int]:
        """The places of all blanks, from left to right."""
        return [place for blank in self.blanks for place in blank]

    def filled(self, fills: Sequence[Tokens]) -> Int[Tensor, "n length"]:
        """Return the template with each of some fills."""
        tokens = self.tokens.repeat(len(fills), 1)
        tokens[:, self.places] = torch.tensor(fills, device=tokens.device)
        return tokens


def shapes_of(
    model: MaskedModel,
    template: str,
    line: int,
    prior: LengthPrior | None = None,
    gaps: Sequence[Gap] = (),
) -> list[Shape]:
    """Return the template with its blanks at each of their sizes."""
    given, region, sized = read_template(model, template, line)
    bounds = [*sized.values(), ONE]  # of regions; all other blanks, number −1, are one token
    # A region is one blank; neighbours of one token are separate blanks.
    starts = [
        place for place, (token, number) in enumerate(zip(given, region, strict=True))
        if token == model.mask_id and (number < 0 or number not in region[:place])
    ]  # fmt: skip
    ranges = [range(few, most + 1) for few, most in (bounds[region[one]] for one in starts)]
    refuse(
        (
            math.prod(map(len, ranges)) > MOST_SHAPES,
            f"the blanks of template {line} may have more than {MOST_SHAPES} lengths together: "
            "give them bounds, such as [MASK{1,3}].",
        )
    )
    found = []
    for sizes in product(*ranges):
        ids, blanks, end = list[int](), list[tuple[int, ...]](), 0
        for start, size, each in zip(starts, sizes, ranges, strict=True):
            ids += given[end:start]
            blanks.append(tuple(range(len(ids), len(ids) + size)))
            ids += [model.mask_id] * size
            end = start + each[0]
        tokens = torch.tensor(ids + given[end:], device=model.device)
        one = Sequences(tokens[None], torch.tensor([len(tokens)], device=model.device))
        log_prior = 0.0 if prior is None else -float(prior(model, one))
        if math.isfinite(log_prior) and model.min_length <= len(tokens) <= model.max_length:
            found.append(Shape(tokens, tuple(blanks), log_prior, tuple(gaps)))
    refuse((not found, f"template {line} has no length that --length-prior and the model allow."))
    return found


def with_context(scorer: Scorer, shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes with −log p of the text around the blanks whose sizes differ."""
    sizes = zip(*(map(len, shape.blanks) for shape in shapes), strict=True)
    sized = [blank for blank, each in enumerate(sizes) if len(set(each)) > 1]
    return [replace(one, context=context_energy(scorer, one, sized)) for one in shapes]


def context_energy(scorer: Scorer, shape: Shape, sized: Sequence[int]) -> float:
    """Return −log p of the text around some of a template's blanks, while all blanks are masked.

    The text is revealed from afar towards these blanks, in the same order whatever their sizes.
    Text beyond REACH is given.
    """
    model, tokens = scorer.model, shape.tokens
    ends = torch.tensor([place for blank in sized for place in shape.blanks[blank]])
    distance = (torch.arange(len(tokens))[:, None] - ends).abs().amin(1).to(tokens.device)
    # Masks are forbidden, and so are tokens that the model never gives.
    order = ((distance <= REACH) & ~model.forbidden[tokens]).nonzero().flatten()
    order = order[distance[order].argsort(descending=True, stable=True)]
    if not len(order):
        return 0.0
    number = torch.arange(len(order), device=tokens.device)
    rank = torch.full_like(tokens, -1)
    rank[order] = number
    rows = tokens.repeat(len(order), 1).masked_fill(rank >= number[:, None], model.mask_id)
    length = torch.full_like(number, len(tokens))
    hidden = scorer.hidden(Queries(rows, length, rank == number[:, None]))
    logs = MaskedConditional().log_probabilities(model.logits(hidden), model.forbidden)
    return -float(logs[number, tokens[order]].sum())


class DistinctScorer(Scorer):
    """A scorer that runs equal queries once: orders, searches and draws ask the same ones."""

    # Answers that are remembered.
    most = 2**15

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.known = dict[bytes, Tensor]()

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Run only the queries that were not asked before."""
        parts = queries.tokens, queries.masked.long(), queries.lengths[:, None]
        keys = [row.tobytes() for row in torch.cat(parts, dim=1).cpu().numpy()]
        if len(self.known) + len(keys) > self.most:
            self.known.clear()
        rows = {key: row for row, key in enumerate(keys) if key not in self.known}
        if rows:
            index = torch.tensor(list(rows.values()), device=queries.tokens.device)
            new = queries.rows(index, queries.tokens.shape[1])
            answers = torch.split(super().hidden(new), new.masked.sum(1).tolist())
            self.known.update(zip(rows, answers, strict=True))
        return torch.cat([self.known[key] for key in keys])


class OrderedFills:
    """Searches and draws fills by the conditionals of a model, under constraints."""

    def __init__(
        self,
        scorer: DistinctScorer,
        whole_words: bool = False,
        constraints: tuple[Constraint, ...] = (),
        rng: CounterRng | None = None,
    ) -> None:
        model = scorer.model
        self.scorer, self._rng = scorer, rng or CounterRng(0)
        self._conditional = MaskedConditional(constraints=constraints)
        self._allowed = ~model.forbidden
        if whole_words:
            self._allowed = self._allowed & ~continues(model)
        # Whether every token that the model may give can stand in a blank.
        self.free = not constraints and torch.equal(self._allowed, ~model.forbidden)
        names = [name.lstrip("Ġ▁") for name in model.token_strings(range(model.vocabulary_size))]
        sizes = [len(name.removeprefix("##") if len(name) > 2 else name) for name in names]
        self._sizes = torch.tensor(sizes, device=model.device)

    def search(self, shape: Shape, width: int) -> list[Tokens]:
        """Return the likeliest fills by a beam from the left, and by one from the right."""
        found = dict[Tokens, None]()
        places = shape.places
        for order in [places] if len(places) == 1 else [places, places[::-1]]:
            tokens = shape.tokens[None]
            score = torch.zeros(1, dtype=torch.float64, device=tokens.device)
            for number, place in enumerate(order):
                if not len(tokens):
                    break
                logs = score[:, None] + self._logs(shape, tokens, order, number)
                score, best = logs.flatten().topk(min(width, logs.numel()))
                best, score = best[score > -torch.inf], score[score > -torch.inf]
                tokens = tokens[best // logs.shape[1]]
                tokens[:, place] = best % logs.shape[1]
            found |= dict.fromkeys(map(tuple, tokens[:, places].tolist()))
        return list(found)

    def draw(
        self, shape: Shape, count: int, known: Sequence[Tokens], first: int = 0
    ) -> tuple[list[Tokens], list[float]]:
        """Draw fills that are not known yet, half from the left and half from the right; log q.

        The last place avoids what would make a known fill. Each draw has one of a few temperatures,
        and q is that of their mixture: fills that the model finds unlikely are drawn, too, so that
        weights have no long tail. A draw that ends nowhere is left out. The draws are numbered from
        `first` on: each number has its own random numbers.
        """
        found, log_q = list[Tokens](), list[float]()
        places = shape.places
        parts = [count] if len(places) == 1 else [count - count // 2, count // 2]
        heats, shares = torch.tensor(
            (_HEATS, _SHARES), dtype=torch.float64, device=shape.tokens.device
        )
        for size, order in zip(parts, [places, places[::-1]], strict=False):
            tokens = shape.tokens.repeat(size, 1)
            chain = torch.arange(first, first + size, device=tokens.device)
            step = torch.zeros_like(chain)
            first += size
            own = self._rng.categorical(shares.repeat(size, 1), chain, step, Purpose.ORDER)
            # log q at each temperature, along the same path.
            logs = shares.log().repeat(size, 1)
            for number, place in enumerate(order):
                if not len(tokens):
                    break
                here = self._logs(shape, tokens, order, number)
                if place == order[-1]:
                    _avoid(here, tokens[:, order[:-1]], [places.index(one) for one in order], known)
                alive = (here > -torch.inf).any(1)
                tokens, logs, own, here = tokens[alive], logs[alive], own[alive], here[alive]
                chain, step = chain[alive], step[alive]
                heated = (here[:, None, :] / heats[:, None]).log_softmax(2)
                mine = heated[torch.arange(len(own), device=own.device), own].exp()
                token = self._rng.categorical(mine, chain, step, Purpose.TOKEN, step + place)
                chosen = token[:, None, None].expand(-1, len(heats), 1)
                logs = logs + heated.gather(2, chosen)[..., 0]
                tokens[:, place] = token
            found += map(tuple, tokens[:, places].tolist())
            log_q += logs.logsumexp(1).tolist()
        return found, log_q

    def _logs(
        self, shape: Shape, tokens: Int[Tensor, "n length"], order: list[int], number: int
    ) -> Float[Tensor, "n vocabulary"]:
        """Return log q of each token at the next place, over those that it may have; or −inf."""
        model, place = self.scorer.model, order[number]
        length = torch.full_like(tokens[:, 0], tokens.shape[1])
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, place] = True
        hidden = self.scorer.hidden(Queries(tokens, length, masked))
        allowed = self._allowed.repeat(len(tokens), 1)
        at = torch.full_like(length, place)
        partly = self._conditional.filling(Sequences(tokens, length), masked, at, model)
        if partly is not None:
            allowed &= self._conditional.allowed(partly, model)
        for blank, gap in zip(shape.blanks, shape.gaps, strict=False):
            if gap is not None and place in blank:
                left = [one for one in blank if one in order[number + 1 :]]
                held = [one for one in blank if one not in left and one != place]
                used = self._sizes[tokens[:, held]].sum(1, keepdim=True) + self._sizes
                # The places that are left have at least a character each.
                allowed &= used + len(left) <= gap[1]
                allowed &= (used >= gap[0]) | bool(left)
        parts = torch.split(hidden, model.head_rows)
        logs = torch.cat([model.logits(part) for part in parts]).double()
        return (
            logs.masked_fill(~allowed, -torch.inf)
            .log_softmax(1)
            .nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        )


def _avoid(
    logs: Float[Tensor, "n vocabulary"],
    before: Int[Tensor, "n places"],
    order: list[int],
    known: Sequence[Tokens],
) -> None:
    """Take away the last tokens that would make a known fill, of which `order` is that of draws."""
    ends = defaultdict[Tokens, list[int]](list)
    for fill in known:
        *first, last = (fill[number] for number in order)
        ends[tuple(first)].append(last)
    for row, prefix in enumerate(map(tuple, before.tolist())):
        logs[row, ends.get(prefix, [])] = -torch.inf
