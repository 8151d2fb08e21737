"""Where chains begin: all masked and filled at random, greedily, by mask-predict, or given texts.

Filling accepts every draw, so it is initialisation: it samples from no target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import torch

from maskov.constraints import Constraint, ContainsWords, PartlyFilled, check_words_agree
from maskov.constraints.base import continues, spellings
from maskov.errors import InputError, refuse
from maskov.kernels import Gibbs, mask_predict
from maskov.kernels.base import whole_epoch
from maskov.models.base import MaskedModel
from maskov.models.conditional import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Site, Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.texts import between, read_template, read_text
from maskov.types import Bool, Chains, Tensor

STARTS = ("masked", "greedy", "mask-predict")
# Of a start by mask-predict.
ITERATIONS = 10
# How often a chain is filled before its constraints are said to contradict each other.
_ATTEMPTS = 50


@dataclass(frozen=True)
class ChainStart:
    """A sequence before its chain begins: tokens, with the mask where nothing stands yet.

    `free` positions may change; `template` says which line of the user's input it is from. Where
    its length may change, `region` is the number of each position's region (−1: it stays) and
    `bounds` the fewest and the most positions of each region. `reference` are the tokens of the
    text that it starts from, if it starts from one.
    """

    tokens: list[int]
    free: list[bool]
    template: int
    region: list[int]
    bounds: list[tuple[int, int]] = field(default_factory=list)
    reference: list[int] = field(default_factory=list)

    @property
    def widths(self) -> tuple[int, int]:
        """The fewest and the most positions that it may have."""
        fixed = self.region.count(-1)
        return fixed + sum(a for a, _ in self.bounds), fixed + sum(b for _, b in self.bounds)

    @property
    def key(self) -> tuple[int, tuple[int, ...]]:
        """What chains that begin alike have in common."""
        return self.template, tuple(self.tokens)

    def resized(self, bounds: Sequence[tuple[int, int]]) -> ChainStart:
        """Return it with a size in its bounds for each stretch of free positions."""
        number, region = -1, list[int]()
        for before, here in zip([False, *self.free], self.free, strict=False):
            number += here and not before
            region.append(number if here else -1)
        return replace(self, region=region, bounds=list(bounds))

    def blanked(self, model: MaskedModel, sizes: Sequence[int]) -> ChainStart:
        """Return it with the mask wherever it is free to change, its regions at the given sizes."""
        free, region = self.at_sizes(sizes)
        held = iter(
            [one for one, is_free in zip(self.tokens, self.free, strict=True) if not is_free]
        )
        tokens = [model.mask_id if is_free else next(held) for is_free in free]
        return replace(self, tokens=tokens, free=free, region=region)

    def at_sizes(self, sizes: Sequence[int]) -> tuple[list[bool], list[int]]:
        """Return which positions are free, and the regions, if the regions have these sizes."""
        free, region = list[bool](), list[int]()
        for is_free, number in zip(self.free, self.region, strict=True):
            if number < 0 or number not in region:
                count = 1 if number < 0 else sizes[number]
                free += [is_free] * count
                region += [number] * count
        return free, region

    def fitting(self, model: MaskedModel, constraints: Sequence[Constraint]) -> ChainStart:
        """Return it with its smallest blanks enlarged as much as needed.

        Where that does not help, its largest blanks are shortened.
        """
        grown = self
        for step in (1, -1):
            now = self
            sizes = [self.region.count(number) for number in range(len(self.bounds))]
            while not bool(Layout([now]).possible(model, constraints)):
                room = [n for n, (a, b) in enumerate(self.bounds) if a <= sizes[n] + step <= b]
                if not room:
                    break
                sizes[min((step * sizes[n], n) for n in room)[1]] += step
                now = self.blanked(model, sizes)
            else:
                return now
            grown = now if step == 1 else grown
        return grown

    def with_word(
        self, model: MaskedModel, word: str, constraints: Sequence[Constraint]
    ) -> list[ChainStart]:
        """Return it alone, if it meets all constraints, or all with a word that meet them then."""
        tokens, free, region, bounds = self.tokens, self.free, self.region, self.bounds
        begins = [*(not bool(continues(model)[token]) for token in tokens), True]
        tried = [self]
        for at, ids in product(range(len(tokens) + 1), spellings(model, word)):
            size, number = len(ids), -1
            end = at if bounds else at + size
            if end > len(tokens) or not (begins[at] and begins[end]):
                continue
            if bounds:  # it joins the stretch before or behind it
                number = max(region[max(at - 1, 0) : at + 1])
                fits = number >= 0 and region.count(number) + size <= bounds[number][1]
            else:
                fits = all(free[at:end])
            if fits:
                tried.append(replace(
                    self,
                    tokens=[*tokens[:at], *ids, *tokens[end:]],
                    free=[*free[:at], *[True] * size, *free[end:]],
                    region=[*region[:at], *[number] * size, *region[end:]],
                ))  # fmt: skip
        fine = Layout(tried).possible(model, constraints).tolist()
        fitting = [one for one, fits in zip(tried, fine, strict=True) if fits]
        return [self] if fine[0] else fitting


@dataclass(frozen=True)
class Layout:
    """The sequences of a run before it begins, one for each chain."""

    starts: list[ChainStart]

    @cached_property
    def resizable(self) -> bool:
        """Whether the length of some chain may change."""
        return any(one.bounds for one in self.starts)

    @cached_property
    def width(self) -> int:
        """The most positions that any chain may have."""
        return max(one.widths[1] for one in self.starts)

    @cached_property
    def shortest(self) -> int:
        """The fewest positions that any chain may have."""
        return min(one.widths[0] for one in self.starts)

    @property
    def mean(self) -> int:
        """The mean length of the chains at their start, rounded up."""
        return -(-sum(len(one.tokens) for one in self.starts) // len(self.starts))

    @classmethod
    def blank(cls, model: MaskedModel, lengths: Sequence[Sequence[int]]) -> Layout:
        """Lay out sequences, all masked: those of each line of the given lengths."""
        return cls([
            ChainStart([model.mask_id] * length, [True] * length, line, [-1] * length)
            for line, row in enumerate(lengths)
            for length in row
        ])  # fmt: skip

    @classmethod
    def of_templates(
        cls, model: MaskedModel, templates: Sequence[str], chains: int, seed: int = 0
    ) -> Layout:
        """Lay out `chains` chains of each template; only its blanks are free.

        A blank of unknown length begins at a size drawn for each chain.
        """
        layout = cls([])
        for line, text in enumerate(templates):
            ids, region, bounds = read_template(model, text, line + 1)
            free = [token == model.mask_id for token in ids]
            start = ChainStart(ids, free, line, region, list(bounds.values()))
            if not bounds:
                layout.starts.extend([start] * chains)
                continue
            for chain in range(line * chains, (line + 1) * chains):
                sizes = _drawn(seed, [chain] * len(bounds), list(bounds), start.bounds)
                layout.starts.append(start.blanked(model, sizes))
        refuse(
            (
                layout.width > model.max_length,
                f"a template may grow to {layout.width} tokens; '{model.name}' takes "
                f"{between(model)}. Bound its blanks, as in [MASK{{1,3}}].",
            )
        )
        return layout

    @classmethod
    def of_texts(
        cls,
        model: MaskedModel,
        texts: Sequence[str],
        chains: int,
        frozen: Sequence[Sequence[int]] | None = None,
    ) -> Layout:
        """Lay out `chains` chains that start at each text; all but its `frozen` tokens are free."""
        layout = cls([])
        each = zip(texts, map(set, frozen or [()] * len(texts)), strict=True)
        for line, (text, places) in enumerate(each):
            ids = read_text(model, text, f"text {line + 1}")
            size, last = len(ids), max(places, default=-1) + 1
            refuse(
                (
                    len(places) == size,
                    f"every token of text {line + 1} is frozen: leave one free.",
                ),
                (
                    last > size,
                    f"text {line + 1} has {size} tokens: there is no position {last} in it to "
                    "freeze.",
                ),
            )
            free = [place not in places for place in range(size)]
            layout.starts.extend([ChainStart(ids, free, line, [-1] * size, reference=ids)] * chains)
        return layout

    def check(self, model: MaskedModel, constraints: Sequence[Constraint]) -> None:
        """Refuse constraints that these sequences cannot meet, with the reason."""
        if not constraints:
            return
        refuse(
            (isinstance(model, ConditionalModel), "translations take no constraints: drop them.")
        )
        # Many chains may begin alike.
        distinct = Layout(list({one.key: one for one in self.starts}.values()))
        sequences = distinct._partly(model, constraints)
        for constraint in constraints:
            constraint.check(model, sequences, self.resizable)
        check_words_agree(constraints, model)
        for constraint in constraints:
            wrong = (~constraint.possible(sequences, model)).nonzero().flatten()
            if wrong.numel():
                start = distinct.starts[int(wrong[0])]
                name = f"a sequence of {len(start.tokens)} tokens"
                if not all(start.free) or start.reference:
                    name = f"{'text' if start.reference else 'template'} {start.template + 1}"
                raise InputError(f"{name} cannot meet {constraint}: change one of them.")

    def fitted(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout that has what must stand there, if it has room for it.

        Blanks of unknown length get room for it, and texts get the words that they lack.
        """
        if not constraints:
            return self
        layout = self._holding(model, constraints)
        if not layout.resizable or not any(model.mask_id in one.tokens for one in layout.starts):
            return layout
        distinct = {one.key: one for one in layout.starts}
        fitting = {key: one.fitting(model, constraints) for key, one in distinct.items()}
        return Layout([fitting[one.key] for one in layout.starts])

    def _holding(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout of texts into which the words are put that they must hold and lack.

        A word is inserted where lengths may change, and takes the place of others where they may
        not; the chains of a text have it at different places. Where none will do, the text stays.
        """
        words = tuple(w for one in constraints if isinstance(one, ContainsWords) for w in one.words)
        others = [one for one in constraints if not isinstance(one, ContainsWords)]
        chains, seen = Counter(one.template for one in self.starts), Counter[int]()
        found: dict[tuple[Any, int], list[ChainStart]] = {}
        starts = list[ChainStart]()
        for start in self.starts:
            share = (seen[start.template] + 0.5) / chains[start.template]
            seen[start.template] += 1
            # Blanks that have not been filled yet may hold any word.
            lacks = start.reference and model.mask_id not in start.tokens
            for size in range(1, len(words) + 1) if lacks else ():
                key = (start.key, size)
                if key not in found:
                    checks = [*others, ContainsWords(words[:size])]
                    found[key] = start.with_word(model, words[size - 1], checks)
                if found[key]:
                    start = found[key][int(share * len(found[key]))]
            starts.append(start)
        return Layout(starts)

    def possible(
        self, model: MaskedModel, constraints: Sequence[Constraint]
    ) -> Bool[Tensor, " chains"]:
        """Return which chains can meet all constraints."""
        sequences = self._partly(model, constraints)
        return torch.stack([one.possible(sequences, model) for one in constraints]).all(0)

    def _partly(self, model: MaskedModel, constraints: Sequence[Constraint]) -> PartlyFilled:
        """Return these sequences as constraints are asked about them."""
        width = max(len(one.tokens) for one in self.starts)
        chains = self.chains(model, range(len(self.starts)), width).to(model.device)
        nowhere, first = torch.zeros_like(chains.free), torch.zeros_like(chains.lengths)
        conditional = MaskedConditional(constraints=tuple(constraints))
        sequences = conditional.filling(chains.sequences, nowhere, first, model)
        assert sequences is not None
        return sequences

    def chains(self, model: MaskedModel, rows: range, width: int) -> Chains:
        """Return some chains at their layout, before any step, padded to a width."""
        own = [self.starts[row] for row in rows]
        longest = max(len(one.reference) for one in self.starts)
        chains = Chains.at(
            _padded([one.tokens for one in own], width, model.mask_id),
            torch.arange(rows.start, rows.stop),
            torch.tensor([len(one.tokens) for one in own]),
            _padded([one.free for one in own], width, False),
            source=torch.tensor([one.template for one in own]),
            reference=_padded([one.reference for one in own], longest, -1) if longest else None,
        )
        # Chains with fewer regions have some that are always empty.
        most = max(len(one.bounds) for one in self.starts)
        bounds = _padded([one.bounds for one in own], most, (0, 0))
        return replace(
            chains,
            region=_padded([one.region for one in own], width, -1),
            bounds=bounds.long().view(len(own), most, 2),
        )


def _padded(lines: Sequence[Sequence[Any]], width: int, value: Any) -> Tensor:
    return torch.tensor([[*line, *[value] * (width - len(line))] for line in lines])


def _drawn(
    seed: int, chains: Sequence[int], steps: Sequence[int], bounds: Sequence[tuple[int, int]]
) -> list[int]:
    """Draw a whole number evenly between each of some bounds."""
    shares = CounterRng(seed).uniform(torch.tensor(chains), torch.tensor(steps), Purpose.LENGTH)
    return [
        few + int(share * (most - few + 1))
        for share, (few, most) in zip(shares.tolist(), bounds, strict=True)
    ]


def draw_lengths(
    model: MaskedModel, shortest: int, longest: int, chains: int, seed: int
) -> list[int]:
    """Draw each chain's length evenly between two bounds."""
    asked = f"{shortest}" if shortest == longest else f"{shortest}:{longest}"
    refuse(
        (
            shortest > longest or shortest < 1,
            f"the length {asked} is not a range; write 20 or 15:45.",
        ),
        (
            shortest < model.min_length or longest > model.max_length,
            f"length {asked} is out of range: '{model.name}' takes {between(model)}.",
        ),
    )
    return _drawn(seed, range(chains), [0] * chains, [(shortest, longest)] * chains)


def fill(
    chains: Chains, start: str, conditional: MaskedConditional, scorer: Scorer, rng: Rng
) -> Chains:
    """Fill every blank: by a random sweep (`masked`), one greedy pass, or mask-predict."""
    bounds = chains.bounds
    # Lengths stay while every blank is visited once.
    chains = replace(chains, bounds=bounds[:, :0])
    if start == "mask-predict":
        refuse((conditional.constraints, "mask-predict keeps no constraints: use another --start."))
        for iteration in range(ITERATIONS):
            chains = whole_epoch(
                mask_predict(ITERATIONS).at(iteration, None, None), chains, scorer, rng
            )
        return replace(chains, bounds=bounds)
    if start == "greedy":
        # Under constraints, one place after the other.
        block = 1 if conditional.constraints else chains.tokens.shape[1]
        best = MaskedConditional(temperature=0, constraints=conditional.constraints)
        kernel = Gibbs(Site(best, Sweep("left-to-right", block)))
    else:
        kernel = Gibbs(Site(conditional, Sweep("random")))
    filled = whole_epoch(kernel, chains, scorer, rng)
    if conditional.constraints:
        filled = _refilled(kernel, chains, filled, scorer, rng)
    return replace(filled, bounds=bounds)


def _refilled(kernel: Gibbs, blank: Chains, filled: Chains, scorer: Scorer, rng: Rng) -> Chains:
    """Fill chains anew that constraints have left with a blank, by other random numbers."""
    for _ in range(_ATTEMPTS):
        left = ((filled.tokens == scorer.model.mask_id) & filled.inside).any(1)
        rows = left.nonzero().flatten()
        if not rows.numel():
            return filled
        again = replace(filled.rows(rows), tokens=blank.tokens[rows])
        again = whole_epoch(kernel, again, scorer, rng)
        filled = filled.put(rows, again)
    constraints = ", ".join(map(str, kernel.conditional.constraints))
    raise InputError(
        f"no sequence that meets {constraints} was found in {_ATTEMPTS} attempts to fill a chain "
        "at random: loosen them, or start from texts that meet them."
    )
