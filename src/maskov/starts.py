"""Where chains begin: all masked and filled at random, greedily, by mask-predict, or given texts.

Filling accepts every draw, so it is initialisation: it samples from no target.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, groupby
from typing import Any

import torch

from maskov.constraints import Constraint, ContainsWords, PartlyFilled, check_constraints
from maskov.constraints.words import continues, spellings
from maskov.errors import InputError
from maskov.execution.loop import whole_epoch
from maskov.fasta import BLANK, has_letters
from maskov.kernels import Gibbs, mask_predict
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Site, Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Chains, Int, Tensor

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
    region: list[list[int]] = field(default_factory=list)
    bounds: list[list[tuple[int, int]]] = field(default_factory=list)
    reference: list[list[int]] = field(default_factory=list)

    @property
    def resizable(self) -> bool:
        """Whether the length of some chain may change."""
        return any(self.bounds)

    @cached_property
    def widths(self) -> list[tuple[int, int]]:
        """The fewest and the most positions that each chain may have."""
        if not self.resizable:
            return [(len(tokens), len(tokens)) for tokens in self.tokens]
        found = []
        for region, bounds in zip(self.region, self.bounds, strict=True):
            fixed = sum(one < 0 for one in region)
            found.append((fixed + sum(a for a, _ in bounds), fixed + sum(b for _, b in bounds)))
        return found

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
    def blank(cls, model: MaskedModel, lengths: Sequence[int]) -> Layout:
        """Lay out sequences of the given lengths, all masked."""
        return cls(
            [[model.mask_id] * length for length in lengths],
            [[True] * length for length in lengths],
            [0] * len(lengths),
        )

    @classmethod
    def of_templates(
        cls, model: MaskedModel, templates: Sequence[str], chains: int, seed: int = 0
    ) -> Layout:
        """Lay out `chains` chains of each template; only its blanks are free.

        A blank of unknown length begins at a size drawn for each chain.
        """
        tokens, regions, bounds = (
            list[list[int]](),
            list[list[int]](),
            list[list[tuple[int, int]]](),
        )
        templates = [_spelled(model, template) for template in templates]
        for number in range(len(templates) * chains):
            line = number // chains
            blanks = find_blanks(templates[line])
            _check_blanks(model, templates[line], line)
            sizes = _drawn_sizes(blanks, number, seed)
            ids = read_text(
                model, expanded(templates[line], sizes), f"template {line + 1}", blanks=True
            )
            if model.mask_id not in ids:
                raise InputError(
                    f"template {line + 1} has no blank; write [MASK] where one may stand."
                )
            tokens.append(ids)
            regions.append(_regions(ids, model.mask_id, blanks, sizes, line))
            bounds.append([blank for blank in blanks if blank != ONE])
        layout = cls(
            tokens,
            [[token == model.mask_id for token in ids] for ids in tokens],
            [index // chains for index in range(len(tokens))],
        )
        if not any(bounds):
            return layout
        layout = replace(layout, region=regions, bounds=bounds)
        if layout.width > model.max_length:
            raise InputError(
                f"a template may grow to {layout.width} tokens; '{model.name}' takes "
                f"{_between(model)}. Bound its blanks, as in [MASK{{1,3}}]."
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
        ids = [read_text(model, text, f"text {line}") for line, text in enumerate(texts, 1)]
        if not ids:
            raise InputError("there is no text to start from.")
        free = [[True] * len(sequence) for sequence in ids]
        for line, places in enumerate(frozen or ()):
            for place in places:
                if place >= len(ids[line]):
                    raise InputError(
                        f"text {line + 1} has {len(ids[line])} tokens: there is no position "
                        f"{place + 1} in it to freeze."
                    )
                free[line][place] = False
            if not any(free[line]):
                raise InputError(f"every token of text {line + 1} is frozen: leave one free.")
        lines = [index // chains for index in range(len(ids) * chains)]
        tokens = [ids[line] for line in lines]
        return cls(tokens, [free[line] for line in lines], lines, reference=tokens)

    @classmethod
    def of_sources(
        cls,
        model: MaskedModel,
        lengths: Sequence[Sequence[int]],
        bounds: Sequence[tuple[int, int]] | None = None,
    ) -> Layout:
        """Lay out the targets of each source, all masked, of the given lengths.

        With `bounds` of each source the lengths of its targets may change.
        """
        blank = cls.blank(model, [length for row in lengths for length in row])
        lines = [line for line, row in enumerate(lengths) for _ in row]
        layout = replace(blank, template=lines)
        return layout if bounds is None else layout.resized([[bounds[line]] for line in lines])

    def stretches(self, row: int) -> list[int]:
        """Return the sizes of the stretches of free positions of a chain, in order."""
        return [len(list(run)) for is_free, run in groupby(self.free[row]) if is_free]

    def resized(self, bounds: Sequence[Sequence[tuple[int, int]]]) -> Layout:
        """Return a layout in which each stretch of free positions may have a size in its bounds."""
        regions = []
        for free in self.free:
            numbers = count()
            runs = ((is_free, list(run)) for is_free, run in groupby(free))
            each = ([next(numbers) if is_free else -1] * len(run) for is_free, run in runs)
            regions.append([number for run in each for number in run])
        return replace(self, region=regions, bounds=[list(own) for own in bounds])

    def blanked(self, model: MaskedModel, rows: Sequence[int], sizes: int | None = None) -> Layout:
        """Return some chains with the mask wherever they are free to change.

        Where lengths may change they are spread evenly over the bounds, or with `sizes` 0 or 1 all
        the smallest or the largest.
        """
        tokens, frees, regions = list[list[int]](), list[list[bool]](), list[list[int]]()
        for number, row in enumerate(rows):
            free, region = self.free[row], self.region[row] if self.resizable else []
            held = [token for token, one in zip(self.tokens[row], free, strict=True) if not one]
            if self.resizable:
                share = (number + 0.5) / len(rows)
                spread = [a + int(share * (b - a + 1)) for a, b in self.bounds[row]]
                ends = None if sizes is None else [bound[sizes] for bound in self.bounds[row]]
                free, region = self.at_sizes(row, ends or spread)
            rest = iter(held)
            tokens.append([model.mask_id if one else next(rest) for one in free])
            frees.append(free)
            regions.append(region)
        lines = [self.template[row] for row in rows]
        reference = [self.reference[row] for row in rows] if self.reference else []
        if not self.resizable:
            return Layout(tokens, frees, lines, reference=reference)
        bounds = [self.bounds[row] for row in rows]
        return Layout(tokens, frees, lines, regions, bounds, reference)

    def chosen(self, rows: Sequence[int]) -> Layout:
        """Return some chains as they are."""

        def pick(values: list[Any]) -> list[Any]:
            return [values[row] for row in rows] if values else []

        return Layout(
            pick(self.tokens),
            pick(self.free),
            pick(self.template),
            pick(self.region),
            pick(self.bounds),
            pick(self.reference),
        )

    def check(self, model: MaskedModel, constraints: Sequence[Constraint]) -> None:
        """Refuse constraints that these sequences cannot meet, with the reason."""
        if not constraints:
            return
        # Many chains may begin alike.
        first = {(self.template[row], tuple(tokens)): row for row, tokens in enumerate(self.tokens)}
        rows = list(first.values())

        def name(index: int) -> str:
            line = self.template[rows[index]] + 1
            if self.reference:
                return f"text {line}"
            if not all(self.free[rows[index]]):
                return f"template {line}"
            return f"a sequence of {len(self.tokens[rows[index]])} tokens"

        sequences = self.chosen(rows)._partly(model, constraints)
        check_constraints(constraints, model, sequences, self.resizable, name)

    def fitted(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout that has what must stand there, if it has room for it.

        Blanks of unknown length get room for it, and texts get the words that they lack.
        """
        layout = self._holding(model, constraints) if constraints and self.reference else self
        blank = any(model.mask_id in tokens for tokens in layout.tokens)
        if not constraints or not layout.resizable or not blank:
            return layout
        fitting: dict[tuple[int, tuple[int, ...]], Layout] = {}
        for row, tokens in enumerate(layout.tokens):
            key = (layout.template[row], tuple(tokens))
            if key not in fitting:
                fitting[key] = layout.chosen([row])._fitting(model, constraints)
        every = [
            fitting[line, tuple(tokens)]
            for line, tokens in zip(layout.template, layout.tokens, strict=True)
        ]
        return replace(
            layout,
            tokens=[one.tokens[0] for one in every],
            free=[one.free[0] for one in every],
            region=[one.region[0] for one in every],
        )

    def _fitting(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout of one chain with its smallest blanks enlarged as much as needed.

        Where that does not help, its largest blanks are shortened.
        """
        grown, fits = self._changed(model, constraints, 1)
        if fits:
            return grown
        shortened, fits = self._changed(model, constraints, -1)
        return shortened if fits else grown

    def _changed(
        self, model: MaskedModel, constraints: Sequence[Constraint], step: int
    ) -> tuple[Layout, bool]:
        """Change the blanks of one chain by one position at a time; return whether it fits now."""
        layout, bounds = self, self.bounds[0]
        while True:
            sequences = layout._partly(model, constraints)
            if all(bool(one.possible(sequences, model)) for one in constraints):
                return layout, True
            sizes = [layout.region[0].count(number) for number in range(len(bounds))]
            room = [n for n, (a, b) in enumerate(bounds) if a <= sizes[n] + step <= b]
            if not room:
                return layout, False
            number = min(room, key=lambda n: step * sizes[n])
            at = layout.region[0].index(number)
            parts = (layout.tokens[0], layout.free[0], layout.region[0])
            # One more of what stands there, or one fewer.
            tokens, free, region = (
                [*p[:at], *p[at : at + 1] * (1 + step), *p[at + 1 :]] for p in parts
            )
            layout = replace(layout, tokens=[tokens], free=[free], region=[region])

    def _holding(self, model: MaskedModel, constraints: Sequence[Constraint]) -> Layout:
        """Return a layout of texts into which the words are put that they must hold and lack.

        A word is inserted where lengths may change, and takes the place of others where they may
        not; the chains of a text have it at different places. Where none will do, the text stays.
        """
        words = tuple(w for one in constraints if isinstance(one, ContainsWords) for w in one.words)
        if not words:
            return self
        others = [one for one in constraints if not isinstance(one, ContainsWords)]
        chains, first = Counter(self.template), dict[int, int]()
        found: dict[tuple[int, tuple[int, ...], int], list[Layout]] = {}
        rows = list[Layout]()
        for row, line in enumerate(self.template):
            own = self.chosen([row])
            share = (row - first.setdefault(line, row) + 0.5) / chains[line]
            # Blanks that have not been filled yet may hold any word.
            for size in () if model.mask_id in own.tokens[0] else range(1, len(words) + 1):
                key = (line, tuple(own.tokens[0]), size)
                if key not in found:
                    checks = [*others, ContainsWords(words[:size])]
                    found[key] = own._with_word(model, words[size - 1], checks)
                if found[key]:
                    own = found[key][int(share * len(found[key]))]
            rows.append(own)
        return replace(
            self,
            tokens=[one.tokens[0] for one in rows],
            free=[one.free[0] for one in rows],
            region=[one.region[0] for one in rows] if self.region else [],
        )

    def _with_word(
        self, model: MaskedModel, word: str, constraints: Sequence[Constraint]
    ) -> list[Layout]:
        """Return a layout of one chain as it is, if it meets all constraints, or all with a word.

        They are those that meet the constraints then.
        """
        (tokens,), (free,), inner = self.tokens, self.free, continues(model)
        region = self.region[0] if self.resizable else []
        begins = [*(not bool(inner[token]) for token in tokens), True]
        tried = [self]
        for at in range(len(tokens) + 1):
            for ids in spellings(model, word):
                end = at if self.resizable else at + len(ids)
                if end > len(tokens) or not (begins[at] and begins[end]):
                    continue
                number = -1
                if self.resizable:  # of the stretch before or behind it
                    number = max(region[max(at - 1, 0) : at + 1])
                    size = region.count(number) + len(ids)
                    if number < 0 or size > self.bounds[0][number][1]:
                        continue
                elif not all(free[at:end]):
                    continue
                changed = replace(
                    self,
                    tokens=[[*tokens[:at], *ids, *tokens[end:]]],
                    free=[[*free[:at], *[True] * len(ids), *free[end:]]],
                )
                if self.resizable:
                    held = [*region[:at], *[number] * len(ids), *region[end:]]
                    changed = replace(changed, region=[held])
                tried.append(changed)
        every = Layout(
            [one.tokens[0] for one in tried], [one.free[0] for one in tried],
            self.template * len(tried), reference=self.reference * len(tried),
        )  # fmt: skip
        sequences = every._partly(model, constraints)
        fits = torch.stack([one.possible(sequences, model) for one in constraints]).all(0).tolist()
        if fits[0]:
            return [self]
        return [one for one, fine in zip(tried, fits, strict=True) if fine]

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
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        shape = (len(rows), width)
        tokens = torch.full(shape, model.mask_id)
        free = torch.zeros(shape, dtype=torch.bool)
        for place, row in enumerate(rows):
            tokens[place, : len(self.tokens[row])] = torch.tensor(self.tokens[row])
            free[place, : len(self.free[row])] = torch.tensor(self.free[row])
        chains = Chains.at(
            tokens,
            lengths,
            free,
            chain=torch.arange(rows.start, rows.stop),
            source=torch.tensor(self.template[rows.start : rows.stop]),
            reference=self._references(rows),
        )
        if not self.resizable:
            return chains
        region = torch.full(shape, -1)
        # Chains with fewer regions have some that are always empty.
        most = max(map(len, self.bounds))
        bounds = torch.zeros((len(rows), most, 2), dtype=torch.long)
        for place, row in enumerate(rows):
            region[place, : len(self.region[row])] = torch.tensor(self.region[row])
            if self.bounds[row]:
                bounds[place, : len(self.bounds[row])] = torch.tensor(self.bounds[row])
        return replace(chains, region=region, bounds=bounds)

    def _references(self, rows: range) -> Int[Tensor, "chains reference"] | None:
        if not self.reference:
            return None
        table = torch.full((len(rows), max(map(len, self.reference))), -1)
        for place, row in enumerate(rows):
            table[place, : len(self.reference[row])] = torch.tensor(self.reference[row])
        return table

    def at_sizes(self, chain: int, sizes: Sequence[int]) -> tuple[list[bool], list[int]]:
        """Return which positions are free, and the regions, of a chain whose regions have sizes."""
        free, region, seen = list[bool](), list[int](), set[int]()
        for is_free, number in zip(self.free[chain], self.region[chain], strict=True):
            if number < 0:
                free.append(is_free)
                region.append(-1)
            elif number not in seen:
                seen.add(number)
                free += [True] * sizes[number]
                region += [number] * sizes[number]
        return free, region


# A blank of one token; others have their own bounds.
ONE = (1, 1)
_BLANK = re.compile(r"(\[MASK|<mask)(?:(\*)|\{(\d+),(\d+)\})?(\]|>)")
_ANY_LENGTH = (1, 8)


def find_blanks(template: str) -> list[tuple[int, int]]:
    """Return the fewest and the most tokens of each blank: [MASK], [MASK*] or [MASK{2,5}]."""
    found = []
    for match in _BLANK.finditer(template):
        bounds = ONE
        if match[2]:
            bounds = _ANY_LENGTH
        elif match[3]:
            bounds = (int(match[3]), int(match[4]))
        if not 1 <= bounds[0] <= bounds[1]:
            raise InputError(
                f"the blank '{match[0]}' has no length: write [MASK{{2,5}}] for two to five tokens."
            )
        found.append(bounds)
    return found


def _spelled(model: MaskedModel, template: str) -> str:
    """Return a template with [MASK] wherever it has the model's own spelling of the mask."""
    (mask,) = model.token_strings([model.mask_id])
    either = f"{_BLANK.pattern}|{re.escape(mask)}"
    return re.sub(either, lambda match: match[0] if match[1] else "[MASK]", template)


def _check_blanks(model: MaskedModel, template: str, line: int) -> None:
    """Refuse <mask> where the model's tokenizer reads it as a word; [MASK] is a blank anywhere."""
    if "<mask" in template and model.encode("<mask>") != [model.mask_id]:
        raise InputError(
            f"template {line + 1} has <mask>, which is not a blank of '{model.name}': write [MASK]."
        )


def expanded(template: str, sizes: Sequence[int]) -> str:
    """Return a template with a [MASK] for every token of each blank."""
    rest = iter(sizes)
    return _BLANK.sub(lambda match: " ".join([match[1] + match[5]] * next(rest)), template)


def _drawn_sizes(blanks: Sequence[tuple[int, int]], chain: int, seed: int) -> list[int]:
    """Draw a size for each blank of a chain, evenly within its bounds."""
    sizes = []
    for number, (fewest, most) in enumerate(blanks):
        where = torch.tensor([chain]), torch.tensor([number])
        drawn = float(CounterRng(seed).uniform(*where, Purpose.LENGTH)[0])
        sizes.append(fewest + int(drawn * (most - fewest + 1)))
    return sizes


def _regions(
    ids: Sequence[int],
    mask_id: int,
    blanks: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    line: int,
) -> list[int]:
    """Return the region of each position: blanks of unknown length are counted from 0."""
    numbers, region = list[int](), 0
    for blank, size in zip(blanks, sizes, strict=True):
        numbers += [-1 if blank == ONE else region] * size
        region += blank != ONE
    if ids.count(mask_id) != len(numbers):  # some other spelling of the mask
        if region:
            raise InputError(
                f"template {line + 1} spells its blanks in several ways: write [MASK] for each "
                "token, and [MASK{2,5}] for a blank of unknown length."
            )
        numbers = [-1] * ids.count(mask_id)
    rest = iter(numbers)
    return [next(rest) if token == mask_id else -1 for token in ids]


def read_text(
    model: MaskedModel, text: str, what: str, blanks: bool = False, unknown: bool = False
) -> list[int]:
    """Tokenise a line and refuse what no chain may hold; `what` names it in the complaint."""
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(f"{what} is not UTF-8 text.")
    if BLANK in text and not blanks and has_letters(model):
        raise InputError(f"{what} has a blank '{BLANK}'; fill it in, or use `maskov infill`.")
    ids = model.encode(text)
    if not ids:
        raise InputError(f"{what} is empty; give at least one word.")
    if not model.min_length <= len(ids) <= model.max_length:
        raise InputError(
            f"{what} has {len(ids)} tokens; '{model.name}' takes {_between(model)}. Shorten it or "
            "use another model."
        )
    if model.mask_id in ids and not blanks:
        raise InputError(f"{what} holds a mask; fill it in, or use `maskov infill`.")
    control = model.control_ids() - {model.mask_id}
    for token in ids:
        bad = token in control if unknown else token != model.mask_id and not model.may_stand(token)
        if bad:
            word = model.token_strings([token])[0]
            raise InputError(
                f"{what} holds '{word}', a special or unknown token, which no sample may hold; "
                "use words of the model's vocabulary."
            )
    return ids


def draw_lengths(
    model: MaskedModel, shortest: int, longest: int, chains: int, seed: int
) -> list[int]:
    """Draw each chain's length evenly between two bounds."""
    if shortest > longest or shortest < 1:
        raise InputError(f"the length {shortest}:{longest} is not a range; write 20 or 15:45.")
    if shortest < model.min_length or longest > model.max_length:
        asked = f"{shortest}" if shortest == longest else f"{shortest}:{longest}"
        raise InputError(f"length {asked} is out of range: '{model.name}' takes {_between(model)}.")
    chain = torch.arange(chains)
    uniform = CounterRng(seed).uniform(chain, torch.zeros_like(chain), Purpose.LENGTH)
    drawn: Int[Tensor, " chains"] = shortest + (uniform * (longest - shortest + 1)).long()
    return [int(length) for length in drawn]


def fill(
    chains: Chains, start: str, conditional: MaskedConditional, scorer: Scorer, rng: Rng
) -> Chains:
    """Fill every blank: by a random sweep (`masked`), one greedy pass, or mask-predict."""
    if start not in STARTS:
        raise InputError(f"unknown start '{start}'; use one of {', '.join(STARTS)}.")
    bounds = chains.bounds
    # Lengths stay while every blank is visited once.
    chains = replace(chains, bounds=bounds[:, :0])
    if start == "mask-predict":
        if conditional.constraints:
            raise InputError("mask-predict keeps no constraints: use another --start.")
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
        moved = again.tensors()
        changed: dict[str, Any] = {
            name: value.index_copy(0, rows, moved[name]) for name, value in filled.tensors().items()
        }
        filled = replace(filled, **changed)
    constraints = ", ".join(map(str, kernel.conditional.constraints))
    raise InputError(
        f"no sequence that meets {constraints} was found in {_ATTEMPTS} attempts to fill a chain "
        "at random: loosen them, or start from texts that meet them."
    )


def _between(model: MaskedModel) -> str:
    if model.min_length == model.max_length:
        return f"exactly {model.max_length} tokens"
    return f"{model.min_length} to {model.max_length} tokens"
