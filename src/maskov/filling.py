"""Fills of blanks, with probabilities that are right.

    p(x) = w(n) exp(−E(x)/T) / Z,   Z = Σ over all fills of the template

x is the template with its blanks filled in, n its tokens, w the prior of lengths. A search finds
the likeliest fills by the model's own conditionals, and exp(−E/T) is added up over them. What the
rest adds is estimated without bias: a draw x of an ordered fill that avoids the fills found so far
has a known probability q(x), and exp(−E/T)/q is its estimate of the rest. Each round adds the
draws of the one before to the fills found, searches wider and draws anew, until the standard error
of Z is small enough or the passes are spent. So the error of Z is that of every probability.

An `ordered` energy is normalised: without constraints Z is known, and nothing is estimated. Where
all fills were found, nothing is left to estimate. Where the length is unknown, an ordered energy
reveals the text around the blanks first and the blanks last. So E is a term of the text, which
depends on n alone, and one of the fill, whose probabilities add up to 1 at each length: Z is a sum
over lengths. Other energies score the whole line.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from maskov import api
from maskov.arguments import arguments_of, constraints_of, energy_of
from maskov.blanks import DistinctScorer, OrderedFills, Shape, Tokens, shapes_of, with_context
from maskov.energies import Energy
from maskov.energies.counting import parse_table
from maskov.energies.ordered import Ordered
from maskov.errors import refuse
from maskov.kernels import Metropolis
from maskov.models.conditional import ConditionalModel
from maskov.random import CounterRng
from maskov.runs.preparation import named_texts, threads
from maskov.runs.result import Fill, fill_table
from maskov.texts import gaps_of, spans_blank
from maskov.types import Chains
from maskov.ui.detokenise import detokenised

if TYPE_CHECKING:
    from pandas import DataFrame

# The energy of fills unless another is given: normalised, so that nothing is estimated. Products
# with E_norm give held-out words a little more probability, for a hundred times the passes
# (results/restoration).
DEFAULT_ENERGY = "ordered(orders=8)"
DEFAULT_PASSES = 3000
# A round is the last if the relative error of Z, or of a known Z the share of the fills that were
# not found, is this small. Up to the second error the answer is good.
AIM, GOOD = 0.02, 0.1
# Width of the first search: where Z is known or lengths differ, and of others, with as many draws.
_NARROW, _FIRST = 4, 16
# Fills evaluated at once.
_BATCH = 256


@dataclass(frozen=True)
class TemplateFills:
    """The fills of a template that were found, the most probable first.

    `error` is relative to every probability. `unlisted` is the probability of all fills that were
    not found. `lengths` are the probabilities of the tokens that all blanks have together, where
    that is unknown, with their errors. `problems` say why the answer is not good enough.
    """

    template: str
    fills: list[Fill] = field(repr=False)
    error: float
    unlisted: float
    passes: int
    lengths: dict[int, tuple[float, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Filling:
    """What became of some templates: the fills of each, and whether they can be relied on."""

    templates: list[TemplateFills]
    energy: str
    temperature: float = 1.0

    def __str__(self) -> str:
        shown = [
            f"{one.probability:.4f} ± {one.error:.4f}  {one.text}"
            for each in self.fills(top_k=5)
            for one in each
        ]
        return "\n".join([*shown, *self.problems])

    def fills(self, top_k: int | None = None) -> list[list[Fill]]:
        """Return the fills of each template, the most probable first."""
        return [one.fills[:top_k] for one in self.templates]

    def fill_table(self, top_k: int | None = None) -> DataFrame:
        """Return the fills as a DataFrame, a row each."""
        return fill_table(self.fills(top_k))

    @property
    def problems(self) -> list[str]:
        """What speaks against the answer; empty if it is good."""
        return [
            f"template {number}: {problem}" if len(self.templates) > 1 else problem
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


@dataclass
class _Found:
    """The fills of one shape that are known, with log w − E/T, and draws of the rest.

    `whole` says that all places are scored, not the blanks alone, `normalised` that the
    probabilities of its fills add up to 1.
    """

    shape: Shape
    whole: bool
    normalised: bool
    width: int  # of the next search
    draws: int  # of the next round
    weights: dict[Tokens, float] = field(default_factory=dict)
    counts: Counter[Tokens] = field(default_factory=Counter)
    searched: int = 0  # the first so many are added up, the rest is estimated
    complete: bool = False
    # Log-estimates of the sum over the others by draws: log w − E/T − log q, or −inf.
    rest: list[float] = field(default_factory=list)

    def mass(self, top: float) -> float:
        """Return the sum over all fills, in units of e^top."""
        if self.normalised:
            return math.exp(self.shape.log_prior - self.shape.context - top)
        rest = np.exp(np.array(self.rest) - top)
        return self.listed(top, self.searched) + float(rest.sum()) / max(len(rest), 1)

    def error(self, top: float) -> float:
        """Return the standard error of that sum."""
        rest = np.exp(np.array(self.rest) - top)
        return float(rest.std(ddof=1)) / math.sqrt(len(rest)) if len(rest) > 1 else 0.0

    def listed(self, top: float, count: int | None = None) -> float:
        """Return the sum over the known fills, or the first so many."""
        return float(np.exp(np.array(list(self.weights.values())[:count]) - top).sum())


@dataclass
class Filler:
    """Finds the fills of templates and their probabilities under one energy."""

    energy: Energy
    temperature: float
    ordered: OrderedFills
    passes: int = DEFAULT_PASSES

    def fill(self, template: str, shapes: list[Shape]) -> TemplateFills:
        """Return the fills of a template that may have some shapes."""
        scorer = self.ordered.scorer
        # A template has the same fills whatever was filled before it.
        scorer.known.clear()
        begun = spent = scorer.passes
        ordered, sized = isinstance(self.energy, Ordered), len(shapes) > 1
        if ordered and sized:
            shapes = with_context(scorer, shapes)
        normalised = (
            ordered and self.temperature == 1 and self.ordered.free and not any(shapes[0].gaps)
        )
        width, drawn = _NARROW if normalised or sized else _FIRST, 0
        first = 1 if normalised else width, max(_FIRST // len(shapes), 4)
        found = [_Found(one, sized and not ordered, normalised, *first) for one in shapes]
        top = max(one.log_prior - one.context for one in shapes)
        while True:
            # The likeliest length is searched most widely; what is not known yet, evenly.
            masses = [one.mass(top) for one in found]
            for one, mass in zip(found, masses, strict=True):
                one.width = max(one.width, math.ceil(width * mass / (max(masses) or 1)))
                new = self.ordered.search(one.shape, one.width)
                self._weigh(one, new)
                one.complete = len(new) < one.width
                one.searched, one.rest = len(one.weights), []
            if all(one.complete for one in found):
                break
            for one in found:
                count = 0 if one.complete or normalised else one.draws
                new, log_q = self.ordered.draw(one.shape, count, list(one.weights), drawn)
                one.counts.update(new)
                pairs = zip(self._weigh(one, new), log_q, strict=True)
                one.rest = [weight - log for weight, log in pairs]
                one.rest += [-math.inf] * (count - len(new))  # attempts that ended nowhere
                drawn += count
            top = max(weight for one in found for weight in one.weights.values())
            total = sum(one.mass(top) for one in found)
            errors = [one.error(top) for one in found]
            missing = 1 - sum(one.listed(top) for one in found) / total
            error = missing if normalised else math.hypot(*errors) / total
            spent, last = scorer.passes, scorer.passes - spent
            # A few draws may look better than they are, and people want more than a few fills.
            if (error <= AIM and width > _FIRST) or spent - begun + 2 * last > self.passes:
                break
            # Twice as many draws, where they make the error smallest.
            width, wanted = 2 * width, 2 * sum(one.draws for one in found)
            spreads = np.array(errors) * np.sqrt([max(len(one.rest), 1) for one in found])
            for one, share in zip(found, spreads / max(spreads.sum(), 1e-300), strict=True):
                one.draws = max(4, round(share * wanted))
        scorer.check()
        refuse(
            (
                not any(one.weights for one in found),
                f"no text can fill the blanks of '{template}' with these options.",
            )
        )
        return self._result(template, found, scorer.passes - begun)

    def _weigh(self, found: _Found, fills: list[Tokens]) -> list[float]:
        """Return log w − E/T of fills, and remember it."""
        shape, energy, scorer = found.shape, self.energy, self.ordered.scorer
        if isinstance(energy, Ordered) and len(shape.places) == 1 and not found.whole:
            energy = replace(energy, orders=1)  # all orders of one place are the same
        new = [fill for fill in dict.fromkeys(fills) if fill not in found.weights]
        for begin in range(0, len(new), _BATCH):
            part = new[begin : begin + _BATCH]
            tokens = shape.filled(part)
            free = torch.full_like(tokens, found.whole, dtype=torch.bool)
            free[:, shape.places] = True
            chains = Chains.at(tokens, torch.arange(len(part), device=tokens.device), free=free)
            scorer.forget()
            energies = Metropolis(energy).init(chains, scorer).energy
            assert energies is not None
            weights = shape.log_prior - (shape.context + energies) / self.temperature
            found.weights.update(zip(part, weights.tolist(), strict=True))
        return [found.weights[fill] for fill in fills]

    def _result(self, template: str, found: list[_Found], passes: int) -> TemplateFills:
        """Turn the weights of fills into probabilities."""
        top = max(weight for one in found for weight in one.weights.values())
        masses = np.array([one.mass(top) for one in found])
        listed = sum(one.listed(top) for one in found)
        total = max(float(masses.sum()), listed)
        errors = [one.error(top) / total for one in found]
        error, fills = math.hypot(*errors), list[Fill]()
        lengths = defaultdict[int, tuple[float, float]](lambda: (0.0, 0.0))
        for one, share, own in zip(found, (masses / total).tolist(), errors, strict=True):
            for tokens, weight in one.weights.items():
                p = math.exp(weight - top) / total
                energy = (one.shape.log_prior - weight) * self.temperature
                text, words = self._spelled(one.shape, tokens)
                fills.append(Fill(text, words, p, p * error, energy, one.counts[tokens]))
            # The mass of a length is uncertain, and so is that of the others.
            others = math.sqrt(max(error**2 - own**2, 0.0))
            p, before = lengths[len(one.shape.places)]
            both = math.hypot(before, own * (1 - share), others * share)
            lengths[len(one.shape.places)] = p + share, both
        problem = (
            f"the probabilities are known to ± {error:.0%} only: use more --passes (now "
            f"{self.passes:,}), or --particles"
        )
        return TemplateFills(
            template, sorted(fills, key=lambda fill: -fill.probability), error,
            max(0.0, 1 - listed / total), passes,
            dict(sorted(lengths.items())) if len(found) > 1 else {},
            [problem] if error > GOOD else [],
        )  # fmt: skip

    def _spelled(self, shape: Shape, tokens: Tokens) -> tuple[str, list[str]]:
        """Return the filled text as people write it, and the words of each blank."""
        model, ids = self.ordered.scorer.model, shape.filled([tokens])[0].tolist()
        words = [model.decode([ids[place] for place in blank]) for blank in shape.blanks]
        return detokenised(model.decode(ids), model.token_strings(ids)), words


def fill_as_asked(**given: Any) -> Filling:
    """Fill templates as the arguments of `maskov.infill` say."""
    asked = arguments_of(api.infill, given)
    lines = [asked.templates] if isinstance(asked.templates, str) else asked.templates
    temperature, spans = asked.target_temperature, asked.spans
    refuse(
        *(
            (value is not None and value < 1, f"--{name} must be at least 1, not {value}.")
            for name, value in (("passes", asked.passes), ("token-budget", asked.token_budget))
        ),
        (
            not isinstance(temperature, int | float) or not 0 < temperature < math.inf,
            "fills have one --target-temperature above 0.",
        ),
        (
            spans is not None and len(spans) != len(lines),
            f"give `spans` for each of {len(lines)} texts.",
        ),
    )
    given_model = asked.given_model()
    model = given_model.load(asked.precision)
    refuse(
        (
            isinstance(model, ConditionalModel),
            f"'{model.name}' is a translation model: use `maskov translate`.",
        )
    )
    if spans is not None:
        lines = [
            spans_blank(model, str(text), each) for text, each in zip(lines, spans, strict=True)
        ]
    written = [gaps_of(line) if isinstance(line, str) else (line, []) for line in lines]
    templates, names = named_texts(model, [line for line, _ in written], blanks=True)
    prior = asked.length_prior
    table = None if prior in (None, "flat", "none") else parse_table(prior)
    shapes = [
        shapes_of(model, text, line, table, gaps)
        for line, (text, (_, gaps)) in enumerate(zip(templates, written, strict=True), 1)
    ]
    refuse(
        (
            prior is not None and all(len(each) == 1 for each in shapes),
            "no blank has an unknown length: drop --length-prior.",
        )
    )
    energy = energy_of(
        DEFAULT_ENERGY if asked.energy is None else asked.energy,
        given_model.loading(asked.token_budget),
    )
    ordered = OrderedFills(
        DistinctScorer(model, asked.token_budget, asked.stop), asked.whole_words,
        constraints_of(asked, False), CounterRng(asked.seed),
    )  # fmt: skip
    filler = Filler(energy, temperature, ordered, asked.passes or DEFAULT_PASSES)
    with threads(asked.threads or 1, model), torch.inference_mode():
        pairs = zip(names or map(str, lines), shapes, strict=True)
        return Filling([filler.fill(*pair) for pair in pairs], str(energy), temperature)
