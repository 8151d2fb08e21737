"""Fills of blanks, with probabilities that are right.

    p(x) = w(n) exp(−E(x)/T) / Z,   Z = Σ over all fills of the template

x is the template with its blanks filled in, n its tokens, w the prior of lengths. A search finds
the likeliest fills by the model's own conditionals, and exp(−E/T) is added up over them. What the
rest adds is estimated without bias: a draw x of an ordered fill that avoids the fills found so far
has a known probability q(x), and exp(−E/T)/q is its estimate of the rest. Each round adds the
draws of the one before to the fills found, searches wider and draws anew, until the standard error
of Z is small enough or the passes are spent. So the error of Z is that of every probability.

An `ordered` energy is normalised: without constraints Z is 1, and nothing is estimated. Where all
fills were found, nothing is left to estimate. Where the length is unknown, energies score the whole
line: an ordered energy of the blanks alone adds up to 1 at every length and says nothing of it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from maskov import api
from maskov.arguments import arguments_of, constraints_of, energy_of
from maskov.constraints.base import continues
from maskov.diagnostics.chains import kept_epochs
from maskov.diagnostics.populations import population_figures
from maskov.energies import Energy
from maskov.energies.counting import LengthPrior, parse_table
from maskov.energies.networks import Loading
from maskov.energies.ordered import Ordered
from maskov.errors import InputError
from maskov.kernels import Metropolis
from maskov.models import MaskedModel
from maskov.models.base import Queries
from maskov.models.conditional import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.options import findable
from maskov.random import CounterRng, Purpose
from maskov.runs.inputs import named_texts
from maskov.runs.preparation import threads
from maskov.texts import Gap, gaps_of, read_template, spans_blank
from maskov.types import Chains, Float, Int, Sequences, Tensor
from maskov.ui.detokenise import detokenised

if TYPE_CHECKING:
    from pandas import DataFrame

    from maskov.runs.result import Run

# The energy of fills unless another is given: normalised, so that nothing is estimated. Products
# with E_norm give held-out words a little more probability, for a hundred times the passes
# (results/restoration).
DEFAULT_ENERGY = "ordered(orders=8)"
# Where lengths are unknown: several orders of a whole line would cost several times the passes.
DEFAULT_OF_LENGTHS = "ordered(left-to-right)"
DEFAULT_PASSES = 4000
# A round is the last if the relative error of Z is this small; up to the second the answer is good.
AIM, GOOD = 0.02, 0.1
# Width of the first search and draws of the first round. Normalised energies have one search: of
# one blank, whose words all have one pass, or of several.
_FIRST, _WORDS, _ONLY = 16, 512, 32
# Temperatures of draws, and how many of the draws have each.
_HEATS, _SHARES = (1.0, 2.0, 8.0), (0.5, 0.25, 0.25)
# Lengths that blanks of a template may have together; fills evaluated at once.
MOST_SHAPES, _BATCH = 128, 256
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Fill:
    """A filled template: its text and the words of each blank, its probability and the error of it.

    `energy` is that of the target. `count` says how many draws were it; the search found it if none
    was.
    """

    text: str
    words: list[str]
    probability: float
    error: float
    energy: float
    count: int = 0


@dataclass(frozen=True)
class TemplateFills:
    """The fills of a template that were found, the most probable first.

    `error` is relative to every probability. `unlisted` is the probability of all fills that were
    not found. `lengths` are the probabilities of the tokens that all blanks have together, where
    that is unknown, with their errors. `problems` say why the answer is not good enough.
    """

    template: str
    fills: list[Fill]
    error: float
    unlisted: float
    passes: int
    lengths: dict[int, tuple[float, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # The probability of each fill that was searched or drawn, and the mass that it stands for.
    masses: list[tuple[float, float]] = field(default_factory=list, repr=False)

    def mass_above(self, probability: float) -> float:
        """Return the mass of all fills that are more probable; below 0.9 a set of 90 % has it.

        Of a normalised energy only fills that were found count.
        """
        return sum(mass for one, mass in self.masses if one > probability)


@dataclass(frozen=True)
class Filling:
    """What became of some templates: the fills of each, and whether they can be relied on."""

    templates: list[TemplateFills]
    energy: str
    temperature: float = 1.0

    def fills(self, top_k: int | None = None) -> list[list[Fill]]:
        """Return the fills of each template, the most probable first."""
        return [one.fills[:top_k] for one in self.templates]

    def fill_table(self, top_k: int | None = None) -> DataFrame:
        """Return the fills as a DataFrame, a row each."""
        return table_of(self.fills(top_k))

    @property
    def problems(self) -> list[str]:
        """What speaks against the answer; empty if it is good."""
        several = len(self.templates) > 1
        return [
            f"template {number}: {problem}" if several else problem
            for number, one in enumerate(self.templates, 1)
            for problem in one.problems
        ]

    def to_json(self, top_k: int | None = None) -> list[str]:
        """Return a line of JSON for each fill."""
        return [
            json.dumps({"template": number, **asdict(fill)}, ensure_ascii=False)
            for number, fills in enumerate(self.fills(top_k))
            for fill in fills
        ]


def table_of(fills: Sequence[Sequence[Fill]]) -> DataFrame:
    """Return the fills of templates as a DataFrame, a row each."""
    import pandas

    rows = [{"template": n, **asdict(fill)} for n, each in enumerate(fills) for fill in each]
    return pandas.DataFrame(rows)


class DistinctScorer(Scorer):
    """A scorer that runs equal queries of a batch once: partly filled templates often are equal."""

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Answer each distinct query once."""
        width = queries.tokens.shape[1]
        rows = torch.cat([queries.tokens, queries.masked.long(), queries.lengths[:, None]], dim=1)
        few, which = torch.unique(rows, dim=0, return_inverse=True)
        if len(few) == len(rows):
            return super().hidden(queries)
        masked = few[:, width : 2 * width].bool()
        found = super().hidden(Queries(few[:, :width], few[:, -1], masked))
        counts = masked.sum(1)
        begin, size = (counts.cumsum(0) - counts)[which], counts[which]
        within = torch.arange(int(size.sum()), device=size.device)
        within = within - (size.cumsum(0) - size).repeat_interleave(size)
        return found[begin.repeat_interleave(size) + within]


@dataclass(frozen=True)
class Shape:
    """A template with blanks of given sizes: masked tokens, the places of each blank, log w(n)."""

    tokens: Int[Tensor, " length"]
    blanks: tuple[tuple[int, ...], ...]
    log_prior: float = 0.0

    @property
    def places(self) -> list[int]:
        """The places of all blanks, from left to right."""
        return [place for blank in self.blanks for place in blank]


def shapes_of(
    model: MaskedModel, template: str, line: int, prior: LengthPrior | None = None
) -> list[Shape]:
    """Return the template with its blanks at each of their sizes."""
    read = read_template(model, template, line)
    # Neighbouring blanks of one token are blanks of their own; a region is one of unknown size.
    starts, ranges = list[int](), list[range]()
    bounds = list(read.bounds.values())
    for place, (token, region) in enumerate(zip(read.ids, read.region, strict=True)):
        if token != model.mask_id or (region >= 0 and place and read.region[place - 1] == region):
            continue
        fewest, most = bounds[region] if region >= 0 else (1, 1)
        starts.append(place)
        ranges.append(range(fewest, most + 1))
    if math.prod(map(len, ranges)) > MOST_SHAPES:
        raise InputError(
            f"the blanks of template {line} may have more than {MOST_SHAPES} lengths together: "
            "give them bounds, such as [MASK{1,3}]."
        )
    found = []
    for sizes in product(*ranges):
        ids, blanks, end = list[int](), list[tuple[int, ...]](), 0
        for start, size, sized in zip(starts, sizes, ranges, strict=True):
            ids += read.ids[end:start]
            blanks.append(tuple(range(len(ids), len(ids) + size)))
            ids += [model.mask_id] * size
            end = start + sized[0]
        ids += read.ids[end:]
        weights = (0.0,) * (len(ids) + 1) if prior is None else prior.log_weights
        number = len(ids) - (0 if prior is None else prior.first)
        if 0 <= number < len(weights) and model.min_length <= len(ids) <= model.max_length:
            tokens = torch.tensor(ids, device=model.device)
            found.append(Shape(tokens, tuple(blanks), weights[number]))
    if not found:
        raise InputError(f"template {line} has no length that --length-prior and the model allow.")
    return found


@dataclass
class Filler:
    """Finds the fills of templates and their probabilities under one energy."""

    energy: Energy
    temperature: float
    scorer: Scorer
    passes: int = DEFAULT_PASSES
    whole_words: bool = False
    conditional: MaskedConditional = field(default_factory=MaskedConditional)
    rng: CounterRng = field(default_factory=lambda: CounterRng(0))

    def __post_init__(self) -> None:
        model = self.scorer.model
        self._allowed = ~model.forbidden
        names = [name.lstrip("Ġ▁") for name in model.token_strings(range(model.vocabulary_size))]
        if self.whole_words:
            self._allowed = self._allowed & ~continues(model)
        sizes = [len(name.removeprefix("##") if len(name) > 2 else name) for name in names]
        self._sizes = torch.tensor(sizes, device=model.device)

    def fill(
        self,
        template: str,
        shapes: list[Shape],
        gaps: Sequence[Gap] = (),
        also: Sequence[Tokens] = (),
    ) -> TemplateFills:
        """Return the fills of a template of some shapes; those given `also` are found in any case.

        `gaps` bound the characters of each blank.
        """
        begun = spent = self.scorer.passes
        self._drawn = 0  # so that a template has the same fills whatever stands before it
        self._gaps = list(gaps)
        free = self._allowed.sum() == (~self.scorer.model.forbidden).sum()
        normalised = (
            isinstance(self.energy, Ordered) and self.temperature == 1 and len(shapes) == 1
            and bool(free) and not any(self._gaps) and not self.conditional.constraints
        )  # fmt: skip
        whole = len(shapes) > 1
        known, counts = dict[tuple[int, Tokens], float](), Counter[tuple[int, Tokens]]()
        width = _FIRST
        self._kernel = Metropolis(self.energy)
        if normalised:
            one = len(shapes[0].places) == 1
            width = _WORDS if one else _ONLY
            if one:  # all orders of one place are the same
                assert isinstance(self.energy, Ordered)
                self._kernel = Metropolis(replace(self.energy, orders=1))
        draws = [max(_FIRST // len(shapes), 4)] * len(shapes)
        # A fill that is given belongs to the shape with as many places.
        fresh = [
            (number, one) for one in also for number, shape in enumerate(shapes)
            if len(shape.places) == len(one)
        ]  # fmt: skip
        while True:
            complete = list[bool]()
            for number, shape in enumerate(shapes):
                found = self._search(shape, width)
                complete.append(len(found) < width)
                fresh += [(number, one) for one in found]
            self._weigh(known, fresh, shapes, whole)
            searched = dict(known)
            estimates, fresh = [_Rest() for _ in shapes], []
            if normalised or all(complete):
                break
            for number, shape in enumerate(shapes):
                mine = [fill for own, fill in searched if own == number]
                count = 0 if complete[number] else draws[number]
                drawn, log_q = self._draw(shape, count, mine)
                keys = [(number, one) for one in drawn]
                self._weigh(known, keys, shapes, whole)
                counts.update(keys)
                fresh += keys
                estimates[number] = _Rest([known[key] for key in keys], log_q, count)
            top = max(known.values())
            total = sum(math.exp(one - top) for one in searched.values())
            total += sum(one.mean(top) for one in estimates)
            error = math.sqrt(sum(one.error(top) ** 2 for one in estimates)) / total
            spent, last = self.scorer.passes, self.scorer.passes - spent
            small = error <= AIM and width > _FIRST  # a few draws may look better than they are
            if small or spent - begun + 2 * last > self.passes:
                break
            width, wanted = 2 * width, 2 * sum(draws)
            spreads = [one.error(top) * math.sqrt(max(one.count, 1)) for one in estimates]
            share = wanted / max(sum(spreads), 1e-300)
            draws = [max(4, round(spread * share)) for spread in spreads]
        self.scorer.check()
        return self._result(
            template, shapes, known, searched, counts, estimates, normalised,
            self.scorer.passes - begun,
        )  # fmt: skip

    def _result(
        self,
        template: str,
        shapes: list[Shape],
        known: dict[tuple[int, Tokens], float],
        searched: dict[tuple[int, Tokens], float],
        counts: Counter[tuple[int, Tokens]],
        estimates: list[_Rest],
        normalised: bool,
        passes: int,
    ) -> TemplateFills:
        """Turn the weights of fills into probabilities."""
        if not known:
            raise InputError(f"no text can fill the blanks of '{template}' as it is asked.")
        top = max(known.values())
        masses = [one.mean(top) for one in estimates]
        for (number, _), weight in searched.items():
            masses[number] += math.exp(weight - top)
        listed = sum(math.exp(one - top) for one in known.values())
        total = math.exp(-top) if normalised else max(sum(masses), listed)
        errors = [one.error(top) / total for one in estimates]
        error = math.sqrt(sum(one**2 for one in errors))
        found = []
        for (number, tokens), weight in sorted(known.items(), key=lambda one: -one[1]):
            probability = math.exp(weight - top) / total
            energy = (shapes[number].log_prior - weight) * self.temperature
            found.append(
                Fill(
                    *self._spelled(shapes[number], tokens), probability, probability * error,
                    energy, counts[number, tokens],
                )
            )  # fmt: skip
        lengths = defaultdict[int, list[float]](lambda: [0.0, 0.0])
        for shape, mass, own in zip(shapes, masses, errors, strict=True):
            share = mass / total
            one = lengths[len(shape.places)]
            one[0] += share
            # Its own mass is uncertain, and so is that of the others.
            one[1] += (own * (1 - share)) ** 2 + share**2 * (error**2 - own**2)
        problems = []
        if error > GOOD:
            problems.append(
                f"the probabilities are known to ± {error:.0%} only: use more --passes (now "
                f"{self.passes:,}), or --particles"
            )
        every = [one for rest in estimates for one in rest.each(top)]
        every += [(weight, math.exp(weight - top)) for weight in searched.values()]
        drawn = [(math.exp(weight - top) / total, mass / total) for weight, mass in every]
        posterior = {size: (p, math.sqrt(max(square, 0))) for size, (p, square) in lengths.items()}
        return TemplateFills(
            template, found, error, max(0.0, 1 - listed / total), passes,
            dict(sorted(posterior.items())) if len(shapes) > 1 else {}, problems, drawn,
        )  # fmt: skip

    def _spelled(self, shape: Shape, tokens: Tokens) -> tuple[str, list[str]]:
        """Return the filled text as people write it, and the words of each blank."""
        model = self.scorer.model
        ids, rest = shape.tokens.tolist(), iter(tokens)
        for place in shape.places:
            ids[place] = next(rest)
        words = [model.decode([ids[place] for place in blank]) for blank in shape.blanks]
        return detokenised(model.decode(ids), model.token_strings(ids)), words

    def _weigh(
        self,
        known: dict[tuple[int, Tokens], float],
        fills: Sequence[tuple[int, Tokens]],
        shapes: list[Shape],
        whole: bool,
    ) -> None:
        """Add log w − E/T of fills that are not known yet; of a `whole` line, all places count."""
        waiting = defaultdict[int, list[Tokens]](list)
        for number, fill in dict.fromkeys(fills):
            if (number, fill) not in known:
                waiting[number].append(fill)
        for number, new in waiting.items():
            shape, places = shapes[number], shapes[number].places
            for begin in range(0, len(new), _BATCH):
                part = torch.tensor(new[begin : begin + _BATCH], device=shape.tokens.device)
                tokens = shape.tokens.repeat(len(part), 1)
                tokens[:, places] = part
                free = torch.full_like(tokens, whole, dtype=torch.bool)
                free[:, places] = True
                one = torch.arange(len(part), device=tokens.device)
                length = torch.full_like(one, tokens.shape[1])
                chains = Chains.at(tokens, length, free, one, torch.zeros_like(one))
                self.scorer.forget()
                energy = self._kernel.init(chains, self.scorer).energy
                assert energy is not None
                weights = shape.log_prior - energy / self.temperature
                for fill, weight in zip(new[begin:], weights.tolist(), strict=False):
                    known[number, fill] = weight

    def _logs(
        self, shape: Shape, tokens: Int[Tensor, "n length"], places: list[int], number: int
    ) -> Float[Tensor, "n vocabulary"]:
        """Return log q of each token at the next place, over those that it may have; or −inf."""
        model, place = self.scorer.model, places[number]
        length = torch.full_like(tokens[:, 0], tokens.shape[1])
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, place] = True
        hidden = self.scorer.hidden(Queries(tokens, length, masked))
        allowed = self._allowed.repeat(len(tokens), 1)
        if self.conditional.constraints:
            at = torch.full_like(length, place)
            partly = self.conditional.filling(Sequences(tokens, length), masked, at, model)
            assert partly is not None
            allowed &= self.conditional.allowed(partly, model)
        for blank, gap in zip(shape.blanks, self._gaps, strict=False):
            if gap is not None and place in blank:
                left = [one for one in blank if one in places[number + 1 :]]
                held = [one for one in blank if one not in left and one != place]
                used = self._sizes[tokens[:, held]].sum(1, keepdim=True) + self._sizes
                # The places that are left have at least a character each.
                allowed &= used + len(left) <= gap[1]
                allowed &= (used >= gap[0]) | bool(left)
        logs = torch.cat(
            [model.logits(part) for part in torch.split(hidden, model.head_rows)]
        ).double()
        logs = logs.masked_fill(~allowed, -torch.inf)
        return logs.log_softmax(1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)

    def _search(self, shape: Shape, width: int) -> list[Tokens]:
        """Return the likeliest fills by a beam from the left, and by one from the right."""
        found = dict[Tokens, None]()
        places = shape.places
        for order in [places] if len(places) == 1 else [places, places[::-1]]:
            tokens = shape.tokens[None]
            score = torch.zeros(1, dtype=torch.float64, device=tokens.device)
            for number, place in enumerate(order):
                logs = score[:, None] + self._logs(shape, tokens, order, number)
                score, best = logs.flatten().topk(min(width, logs.numel()))
                best, score = best[score > -torch.inf], score[score > -torch.inf]
                tokens = tokens[best // logs.shape[1]]
                tokens[:, place] = best % logs.shape[1]
            if not len(tokens):
                break
            found |= dict.fromkeys(map(tuple, tokens[:, places].tolist()))
        return list(found)

    def _draw(
        self, shape: Shape, count: int, known: Sequence[Tokens]
    ) -> tuple[list[Tokens], list[float]]:
        """Draw fills that are not known yet, half from the left and half from the right; log q.

        The last place avoids what would make a known fill. Each draw has one of a few temperatures,
        and q is that of their mixture: fills that the model finds unlikely are drawn, too, so that
        weights have no long tail. A draw that ends nowhere is left out.
        """
        found, log_q = list[Tokens](), list[float]()
        places = shape.places
        parts = [count] if len(places) == 1 else [count - count // 2, count // 2]
        heats, shares = torch.tensor(
            (_HEATS, _SHARES), dtype=torch.float64, device=shape.tokens.device
        )
        for size, order in zip(parts, [places, places[::-1]], strict=False):
            if not size:
                continue
            tokens = shape.tokens.repeat(size, 1)
            chain = torch.arange(size, device=tokens.device) + self._drawn
            step = torch.zeros_like(chain)
            self._drawn += size
            own = self.rng.categorical(shares.repeat(size, 1), chain, step, Purpose.ORDER)
            # log q at each temperature, along the same path.
            logs = shares.log().repeat(size, 1)
            for number, place in enumerate(order):
                here = self._logs(shape, tokens, order, number)
                if place == order[-1]:
                    here = self._avoiding(here, tokens[:, order[:-1]], order, places, known)
                alive = (here > -torch.inf).any(1)
                tokens, logs, own, here = tokens[alive], logs[alive], own[alive], here[alive]
                chain, step = chain[alive], step[alive]
                if not len(tokens):
                    break
                heated = (here[:, None, :] / heats[:, None]).log_softmax(2)
                mine = heated[torch.arange(len(own), device=own.device), own].exp()
                token = self.rng.categorical(mine, chain, step, Purpose.TOKEN, step + place)
                logs = (
                    logs + heated.gather(2, token[:, None, None].expand(-1, len(heats), 1))[..., 0]
                )
                tokens[:, place] = token
            found += map(tuple, tokens[:, places].tolist())
            log_q += logs.logsumexp(1).tolist()
        return found, log_q

    @staticmethod
    def _avoiding(
        logs: Float[Tensor, "n vocabulary"],
        before: Int[Tensor, "n places"],
        order: list[int],
        places: list[int],
        known: Sequence[Tokens],
    ) -> Float[Tensor, "n vocabulary"]:
        """Return log q without the last tokens that would make a known fill."""
        number = [places.index(place) for place in order]
        ends = defaultdict[Tokens, list[int]](list)
        for fill in known:
            *first, last = (fill[place] for place in number)
            ends[tuple(first)].append(last)
        for row, prefix in enumerate(map(tuple, before.tolist())):
            logs[row, ends.get(prefix, [])] = -torch.inf
        return logs


@dataclass(frozen=True)
class _Rest:
    """Draws of the fills that are not known: their log-weights and log q, of `count` attempts."""

    log_weight: list[float] = field(default_factory=list)
    log_q: list[float] = field(default_factory=list)
    count: int = 0

    def each(self, top: float) -> list[tuple[float, float]]:
        """Return the log-weight of each draw and its part of the estimate, in units of e^top."""
        pairs = zip(self.log_weight, self.log_q, strict=True)
        return [(weight, math.exp(weight - q - top) / self.count) for weight, q in pairs]

    def mean(self, top: float) -> float:
        """Return the estimate of the sum over the rest."""
        return sum(mass for _, mass in self.each(top))

    def error(self, top: float) -> float:
        """Return its standard error."""
        if self.count < 2:
            return 0.0
        mean = self.mean(top) / self.count
        parts = [mass for _, mass in self.each(top)]
        square = sum((one - mean) ** 2 for one in parts) + (self.count - len(parts)) * mean**2
        return math.sqrt(square * self.count / (self.count - 1))


def fill_as_asked(**given: Any) -> Filling:
    """Fill templates as the arguments of `maskov.infill` say."""
    asked = arguments_of(api.infill, given)
    lines = [asked.templates] if isinstance(asked.templates, str) else asked.templates
    if asked.passes is not None and asked.passes < 1:
        raise InputError(f"--passes must be at least 1, not {asked.passes}.")
    temperature = asked.target_temperature
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise InputError("fills have one --target-temperature above 0.")
    given_model = asked.given_model()
    model, device = given_model.load(asked.precision), given_model.device
    if isinstance(model, ConditionalModel):
        raise InputError(f"'{model.name}' is a translation model: use `maskov translate`.")
    if asked.spans is not None:
        if len(asked.spans) != len(lines):
            raise InputError(
                f"give `spans` for each of {len(lines)} texts, not {len(asked.spans)}."
            )
        lines = [
            spans_blank(model, str(text), each)
            for text, each in zip(lines, asked.spans, strict=True)
        ]
    written = [gaps_of(str(line)) if isinstance(line, str) else (line, []) for line in lines]
    templates, names = named_texts(model, [line for line, _ in written], blanks=True)
    prior = asked.length_prior
    table = None if prior in (None, "flat", "none") else parse_table(prior)
    shapes = [shapes_of(model, one, line, table) for line, one in enumerate(templates, 1)]
    sized = any(len(each) > 1 for each in shapes)
    if prior is not None and not sized:
        raise InputError("no blank has an unknown length: drop --length-prior.")
    usual = DEFAULT_OF_LENGTHS if sized else DEFAULT_ENERGY
    energy = energy_of(
        usual if asked.energy is None else asked.energy,
        Loading(device, asked.trust_remote_code, find=findable, budget=asked.token_budget),
    )
    filler = Filler(
        energy, temperature, DistinctScorer(model, asked.token_budget, asked.stop),
        asked.passes or DEFAULT_PASSES, asked.whole_words,
        MaskedConditional(constraints=constraints_of(asked, False)), CounterRng(asked.seed),
    )  # fmt: skip
    with threads(asked.threads or 1, model), torch.inference_mode():
        found = [
            filler.fill(text if names is None else names[number], each, gaps)
            for number, (text, each, (_, gaps)) in enumerate(
                zip(templates, shapes, written, strict=True)
            )
        ]
    return Filling(found, str(energy), temperature)


def fills_of_run(run: Run, model: MaskedModel) -> list[list[Fill]]:
    """Return the fills that chains or particles held after burn-in, with their shares.

    The error is that between chains, or between populations, which count in proportion to Z.
    """
    traces, samples, particles = run.traces, run.samples, run.manifest.particles or 1
    held = defaultdict[int, dict[Tokens, Counter[int]]](lambda: defaultdict(Counter))
    energies = dict[tuple[int, Tokens], float]()
    for chain, template, ids, energy in _states(run):
        held[template][ids][chain // particles] += 1
        energies[template, ids] = energy
    evidence = {
        one.template: one.each
        for one in (population_figures(run.manifest, traces) if run.manifest.particles else ())
    }
    found = []
    for template, counts in sorted(held.items()):
        groups = sorted({one.chain // particles for one in samples if one.template == template})
        weight = np.exp(np.array(evidence.get(template, [0.0] * len(groups))))
        weight = weight / weight.sum()
        drawn = {group: sum(each[group] for each in counts.values()) for group in groups}
        rows = []
        for ids, each in counts.items():
            shares = np.array([each[group] / max(drawn[group], 1) for group in groups])
            share = float((weight * shares).sum())
            scatter = float(((weight * (shares - share)) ** 2).sum())
            count = len(groups)
            error = math.sqrt(scatter * count / (count - 1)) if count > 1 else math.nan
            text = detokenised(model.decode(ids), model.token_strings(ids))
            rows.append(Fill(text, [], share, error, energies[template, ids], sum(each.values())))
        found.append(sorted(rows, key=lambda fill: (-fill.probability, fill.energy, fill.text)))
    return found


def _states(run: Run) -> Iterator[tuple[int, int, Tokens, float]]:
    """Yield the chain, template, tokens and energy of every chain after burn-in.

    Large runs trace no tokens; of those only the samples are known.
    """
    samples, traces = run.samples, run.traces
    target = {"raw": "energy_raw", "norm": "energy_norm"}.get(str(run.manifest.energy))
    if "tokens" not in traces or "lengths" not in traces:
        for one in samples:
            energy = getattr(one, target) if target else one.energies.get("target", math.nan)
            yield one.chain, one.template, tuple(one.ids), energy
        return
    template = {one.chain: one.template for one in samples}
    kept = kept_epochs(run.manifest, traces)
    names = ("tokens", "lengths", "energy_target")
    for epoch in zip(*(traces[name][kept].tolist() for name in names), strict=True):
        for chain, (ids, length, energy) in enumerate(zip(*epoch, strict=True)):
            yield chain, template[chain], tuple(ids[:length]), energy
