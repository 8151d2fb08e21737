"""Where chains begin: all masked and filled at random, greedily, by mask-predict, or given texts.

Filling accepts every draw, so it is initialisation: it samples from no target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, groupby, product
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
class Layout:
    """The sequences of a run before it begins: tokens, with the mask where nothing stands yet.

    `free` positions may change; `template` says which line of the user's input a chain is from.
    Where lengths may change, `region` is the number of each position's region (−1: it stays) and
    `bounds` the fewest and the most positions of each region, chain by chain. `reference` are the
    tokens of the text that each chain starts from, if they start from texts.
    """

    tokens: list[list[int]]
    free: list[list[bool]]
    template: list[int]
    region: list[list[int]]
    bounds: list[list[tuple[int, int]]]
    reference: list[list[int]]

    @property
    def resizable(self) -> bool:
        """Whether the length of some chain may change."""
        return any(self.bounds)

    @cached_property
    def widths(self) -> list[tuple[int, int]]:
        """The fewest and the most positions that each chain may have."""
        fixed = [region.count(-1) for region in self.region]
        return [
            (own + sum(a for a, _ in bounds), own + sum(b for _, b in bounds))
            for own, bounds in zip(fixed, self.bounds, strict=True)
        ]

    @property
    def width(self) -> int:
        """The most positions that any chain may have."""
        return max(most for _, most in self.widths)

    @property
    def shortest(self) -> int:
        """The fewest positions that any chain may have."""
        return min(fewest for fewest, _ in self.widths)

    @property
    def mean(self) -> int:
        """The mean length of the chains at their start, rounded up."""
        return -(-sum(map(len, self.tokens)) // len(self.tokens))

    @classmethod
    def of_tokens(
        cls,
        tokens: list[list[int]],
        free: list[list[bool]],
        template: list[int],
        reference: list[list[int]] | None = None,
    ) -> Layout:
        """Lay out sequences whose lengths stay."""
        region = [[-1] * len(ids) for ids in tokens]
        return cls(tokens, free, template, region, [[] for _ in tokens], reference or [])

    @classmethod
    def blank(cls, model: MaskedModel, lengths: Sequence[int]) -> Layout:
        """Lay out sequences of the given lengths, all masked."""
        tokens = [[model.mask_id] * length for length in lengths]
        return cls.of_tokens(tokens, [[True] * length for length in lengths], [0] * len(lengths))

    @classmethod
    def of_templates(
        cls, model: MaskedModel, templates: Sequence[str], chains: int, seed: int = 0
    ) -> Layout:
        """Lay out `chains` chains of each template; only its blanks are free.

        A blank of unknown length begins at a size drawn for each chain.
        """
        read = [read_template(model, text, line) for line, text in enumerate(templates, 1)]
        smallest = cls(
            [one.ids for one in read],
            [[token == model.mask_id for token in one.ids] for one in read],
            list(range(len(read))),
            [one.region for one in read],
            [list(one.bounds.values()) for one in read],
            [],
        )
        refuse(
            (
                smallest.width > model.max_length,
                f"a template may grow to {smallest.width} tokens; '{model.name}' takes "
                f"{between(model)}. Bound its blanks, as in [MASK{{1,3}}].",
            )
        )
        layout = smallest.chosen([index // chains for index in range(len(read) * chains)])
        if not layout.resizable:
            return layout
        blanks = [(chain, read[line].bounds) for chain, line in enumerate(layout.template)]
        sizes = [
            [
                a + int(share * (b - a + 1))
                for share, (a, b) in zip(
                    _uniform(seed, [chain] * len(bounds), list(bounds)),
                    bounds.values(),
                    strict=True,
                )
            ]
            for chain, bounds in blanks
        ]
        return layout._sized(model, sizes)

    @classmethod
    def of_texts(
        cls,
        model: MaskedModel,
        texts: Sequence[str],
        chains: int,
        frozen: Sequence[Sequence[int]] | None = None,
    ) -> Layout:
        """Lay out `chains` chains that start at each text; all but its `frozen` tokens are free."""
        ids = [read_text(model, text, f"text {line}") for line, text in enumerate(texts, 1)]
        held = [set(places) for places in frozen or [()] * len(ids)]
        sizes = enumerate(zip(map(len, ids), held, strict=True), 1)
        refuse(
            (not ids, "there is no text to start from."),
            *(
                (
                    max(places, default=0) >= size or len(places) == size,
                    f"every token of text {line} is frozen: leave one free."
                    if len(places) == size
                    else f"text {line} has {size} tokens: there is no position "
                    f"{max(places, default=0) + 1} in it to freeze.",
                )
                for line, (size, places) in sizes
            ),
        )
        free = [
            [place not in places for place in range(len(own))]
            for own, places in zip(ids, held, strict=True)
        ]
        layout = cls.of_tokens(ids, free, list(range(len(ids))), ids)
        return layout.chosen([index // chains for index in range(len(ids) * chains)])

    @classmethod
    def of_sources(cls, model: MaskedModel, lengths: Sequence[Sequence[int]]) -> Layout:
        """Lay out the targets of each source, all masked, of the given lengths."""
        blank = cls.blank(model, [length for row in lengths for length in row])
        return replace(blank, template=[line for line, row in enumerate(lengths) for _ in row])

    def stretches(self, row: int) -> list[int]:
        """Return the sizes of the stretches of free positions of a chain, in order."""
        return [len(list(run)) for is_free, run in groupby(self.free[row]) if is_free]

    def resized(self, bounds: Sequence[Sequence[tuple[int, int]]]) -> Layout:
        """Return a layout in which each stretch of free positions may have a size in its bounds."""
        regions = []
        for free in self.free:
            number, region = -1, list[int]()
            for before, here in zip([False, *free], free, strict=False):
                number += here and not before
                region.append(number if here else -1)
            regions.append(region)
        return replace(self, region=regions, bounds=[list(own) for own in bounds])

    def blanked(self, model: MaskedModel, rows: Sequence[int], end: int | None = None) -> Layout:
        """Return some chains with the mask wherever they are free to change.

        Where lengths may change they are spread evenly over the bounds, or with `end` 0 or 1 all
        the smallest or the largest.
        """
        chosen, count = self.chosen(rows), len(rows)
        sizes = [
            [
                a + int((n + 0.5) / count * (b - a + 1)) if end is None else (a, b)[end]
                for a, b in own
            ]
            for n, own in enumerate(chosen.bounds)
        ]
        return chosen._sized(model, sizes)

    def _sized(self, model: MaskedModel, sizes: Sequence[Sequence[int]]) -> Layout:
        """Return the chains all blank, their regions at the given sizes."""
        tokens, frees, regions = list[list[int]](), list[list[bool]](), list[list[int]]()
        for row, own in enumerate(sizes):
            free, region = self.at_sizes(row, own)
            before = zip(self.tokens[row], self.free[row], strict=True)
            held = iter([token for token, is_free in before if not is_free])
            tokens.append([model.mask_id if is_free else next(held) for is_free in free])
            frees.append(free)
            regions.append(region)
        return replace(self, tokens=tokens, free=frees, region=regions)

    def at_sizes(self, chain: int, sizes: Sequence[int]) -> tuple[list[bool], list[int]]:
        """Return which positions are free, and the regions, of a chain whose regions have sizes."""
        free, region = list[bool](), list[int]()
        for is_free, number in zip(self.free[chain], self.region[chain], strict=True):
            if number < 0 or number not in region:
                count = 1 if number < 0 else sizes[number]
                free += [is_free] * count
                region += [number] * count
        return free, region

    def chosen(self, rows: Iterable[int]) -> Layout:
        """Return some chains as they are."""
        rows = list(rows)
        return Layout(
            *([column[row] for row in rows] if column else [] for column in self._columns)
        )

    @property
    def _columns(self) -> list[list[Any]]:
        return [getattr(self, field.name) for field in fields(self)]

    @staticmethod
    def _joined(parts: Sequence[Layout]) -> Layout:
        """Return the chains of several layouts."""
        columns = zip(*(part._columns for part in parts), strict=True)
        return Layout(*(list(chain.from_iterable(column)) for column in columns))

    def _distinct(self) -> dict[tuple[int, tuple[int, ...]], int]:
        """Return a chain for each line and first sequence: many chains may begin alike."""
        every = zip(self.template, map(tuple, self.tokens), strict=True)
        return {key: row for row, key in enumerate(every)}

    def check(self, model: MaskedModel, constraints: Sequence[Constraint]) -> None:
        """Refuse constraints that these sequences cannot meet, with the reason."""
        if not constraints:
            return
        refuse(
            (isinstance(model, ConditionalModel), "translations take no constraints: drop them.")
        )
        distinct = self.chosen(self._distinct().values())
        sequences = distinct._partly(model, constraints)
        for constraint in constraints:
            constraint.check(model, sequences, self.resizable)
        check_words_agree(constraints, model)
        for constraint in constraints:
            wrong = (~constraint.possible(sequences, model)).nonzero().flatten()
            if wrong.numel():
                name = distinct._name(int(wrong[0]))
                raise InputError(f"{name} cannot meet {constraint}: change one of them.")

    def _name(self, row: int) -> str:
        """Return what a sequence is to the user."""
        if self.reference:
            return f"text {self.template[row] + 1}"
        if not all(self.free[row]):
            return f"template {self.template[row] + 1}"
        return f"a sequence of {len(self.tokens[row])} tokens"

    def fitted(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout that has what must stand there, if it has room for it.

        Blanks of unknown length get room for it, and texts get the words that they lack.
        """
        layout = self._holding(model, constraints) if constraints and self.reference else self
        blank = any(model.mask_id in tokens for tokens in layout.tokens)
        if not constraints or not layout.resizable or not blank:
            return layout
        fitting = {
            key: layout.chosen([row])._fitting(model, constraints)
            for key, row in layout._distinct().items()
        }
        every = zip(layout.template, map(tuple, layout.tokens), strict=True)
        return Layout._joined([fitting[key] for key in every])

    def _fitting(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout of one chain with its smallest blanks enlarged as much as needed.

        Where that does not help, its largest blanks are shortened.
        """
        (bounds,), grown = self.bounds, self
        for step in (1, -1):
            layout = self
            sizes = [self.region[0].count(number) for number in range(len(bounds))]
            while not bool(layout._possible(model, constraints)):
                room = [n for n, (a, b) in enumerate(bounds) if a <= sizes[n] + step <= b]
                if not room:
                    break
                sizes[min((step * sizes[n], n) for n in room)[1]] += step
                layout = self._sized(model, [sizes])
            else:
                return layout
            grown = layout if step == 1 else grown
        return grown

    def _holding(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout of texts into which the words are put that they must hold and lack.

        A word is inserted where lengths may change, and takes the place of others where they may
        not; the chains of a text have it at different places. Where none will do, the text stays.
        """
        words = tuple(w for one in constraints if isinstance(one, ContainsWords) for w in one.words)
        others = [one for one in constraints if not isinstance(one, ContainsWords)]
        chains, seen = Counter(self.template), Counter[int]()
        found: dict[tuple[int, tuple[int, ...], int], list[Layout]] = {}
        rows = list[Layout]()
        for row, line in enumerate(self.template):
            own, share = self.chosen([row]), (seen[line] + 0.5) / chains[line]
            seen[line] += 1
            # Blanks that have not been filled yet may hold any word.
            for size in () if model.mask_id in own.tokens[0] else range(1, len(words) + 1):
                key = (line, tuple(own.tokens[0]), size)
                if key not in found:
                    checks = [*others, ContainsWords(words[:size])]
                    found[key] = own._with_word(model, words[size - 1], checks)
                if found[key]:
                    own = found[key][int(share * len(found[key]))]
            rows.append(own)
        return Layout._joined(rows)

    def _with_word(
        self, model: MaskedModel, word: str, constraints: Sequence[Constraint]
    ) -> list[Layout]:
        """Return a layout of one chain as it is, if it meets all constraints, or all with a word.

        They are those that meet the constraints then.
        """
        (tokens,), (free,), (region,), (bounds,) = self.tokens, self.free, self.region, self.bounds
        inner = continues(model)
        begins = [*(not bool(inner[token]) for token in tokens), True]
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
                changed = replace(
                    self,
                    tokens=[[*tokens[:at], *ids, *tokens[end:]]],
                    free=[[*free[:at], *[True] * size, *free[end:]]],
                    region=[[*region[:at], *[number] * size, *region[end:]]],
                )
                tried.append(changed)
        fine = Layout._joined(tried)._possible(model, constraints).tolist()
        if fine[0]:
            return [self]
        return [one for one, fits in zip(tried, fine, strict=True) if fits]

    def _possible(
        self, model: MaskedModel, constraints: Sequence[Constraint]
    ) -> Bool[Tensor, " chains"]:
        """Return which chains can meet all constraints."""
        sequences = self._partly(model, constraints)
        return torch.stack([one.possible(sequences, model) for one in constraints]).all(0)

    def _partly(self, model: MaskedModel, constraints: Sequence[Constraint]) -> PartlyFilled:
        """Return these sequences as constraints are asked about them."""
        width = max(map(len, self.tokens))
        chains = self.chains(model, range(len(self.tokens)), width).to(model.device)
        nowhere, first = torch.zeros_like(chains.free), torch.zeros_like(chains.lengths)
        conditional = MaskedConditional(constraints=tuple(constraints))
        sequences = conditional.filling(chains.sequences, nowhere, first, model)
        assert sequences is not None
        return sequences

    def chains(self, model: MaskedModel, rows: range, width: int) -> Chains:
        """Return some chains at their layout, before any step, padded to a width."""
        own, longest = self.chosen(rows), max(map(len, self.reference), default=0)
        chains = Chains.at(
            _padded(own.tokens, width, model.mask_id),
            torch.arange(rows.start, rows.stop),
            torch.tensor([len(tokens) for tokens in own.tokens]),
            _padded(own.free, width, False),
            source=torch.tensor(own.template),
            reference=_padded(own.reference, longest, -1) if own.reference else None,
        )
        if not self.resizable:
            return chains
        # Chains with fewer regions have some that are always empty.
        bounds = _padded(own.bounds, max(map(len, self.bounds)), (0, 0))
        return replace(chains, region=_padded(own.region, width, -1), bounds=bounds)


def _padded(lines: Sequence[Sequence[Any]], width: int, value: Any) -> Tensor:
    return torch.tensor([[*line, *[value] * (width - len(line))] for line in lines])


def _uniform(seed: int, chains: Sequence[int], steps: Sequence[int]) -> list[float]:
    where = torch.tensor(chains, dtype=torch.long), torch.tensor(steps, dtype=torch.long)
    drawn: list[float] = CounterRng(seed).uniform(*where, Purpose.LENGTH).tolist()
    return drawn


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
    drawn = _uniform(seed, range(chains), [0] * chains)
    return [shortest + int(share * (longest - shortest + 1)) for share in drawn]


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
            now = mask_predict(ITERATIONS).at(iteration, None, None)
            chains = whole_epoch(now, chains, scorer, rng)
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
