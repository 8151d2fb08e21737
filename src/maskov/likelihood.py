"""Evidence: log Z of a target by length, and with it the likelihood of texts.

    p(x | n) = exp(−E(x)/T) / Z_n,   nats per token = (E(x)/T + log Z_n) / n

Z_n is estimated by independent populations (`maskov.kernels.population`) that start from an ordered
fill. Each estimate is unbiased, so log Z is a lower bound up to chance, and so are the nats per
token: too few passes make a target look better than it is, never worse. The energies `ordered` are
normalised: their log Z is 0 and nothing is estimated.

The points of the path from the ordered fill to a target are products of both, q^(1−b) exp(−bE/T).
Their likelihoods come with the path; the best of them is reported.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskov import api
from maskov.arguments import arguments_of, energy_of
from maskov.diagnostics.diagnosis import Table
from maskov.diagnostics.populations import Estimate, PopulationSummary
from maskov.energies import Autoregressive, Energy
from maskov.energies.ordered import Ordered
from maskov.errors import InputError, reason_of, refuse
from maskov.execution.population_rounds import PopulationRounds
from maskov.kernels import Metropolis
from maskov.kernels.population import Population, backward
from maskov.models.base import MaskedModel
from maskov.models.conditional import ConditionalModel, given_sources
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.runs.preparation import threads
from maskov.tuning import FIRST_CHAIN, PILOTS, with_path
from maskov.types import Chains, Float, Tensor

# A length in tokens, and the number of the source from 0; 0 where there is none.
Group = tuple[int, int]
# Draws of a causal model that estimate how probable lengths are, and those in one batch.
_DRAWS, _AT_ONCE = 2048, 256


@dataclass(frozen=True)
class Point:
    """A point of the path at one length: its share of the target and what texts have there."""

    share: float
    log_z: float
    nats_per_token: float


@dataclass(frozen=True)
class Bounds:
    """What populations say of a log Z that is known: from below, and from above by exact draws.

    `agree` and `problems` are those of the populations from below.
    """

    lower: Estimate
    upper: Estimate
    agree: bool
    problems: tuple[str, ...]


@dataclass(frozen=True)
class LengthEvidence:
    """A target at one length: log Z and its error, and the sum of E/T over the texts.

    Of translations it is a pair, and `line` the number of its source.
    """

    length: int
    texts: int
    log_z: float
    error: float
    energy: float
    passes: float
    agree: bool
    problems: tuple[str, ...]
    curve: tuple[Point, ...] = ()
    bounds: Bounds | None = None
    line: int | None = None

    @property
    def nats(self) -> float:
        """−log p of all texts together."""
        return self.energy + self.texts * self.log_z


@dataclass(frozen=True)
class TargetEvidence:
    """A target at all lengths, and the likelihood of the texts under it."""

    energy: str
    temperature: float
    lengths: tuple[LengthEvidence, ...]
    nats_per_token: float
    error: float
    text_error: float
    bits_per_byte: float
    exact: bool

    @property
    def agree(self) -> bool:
        """Whether the populations of every length agree."""
        return all(one.agree for one in self.lengths)

    @property
    def best(self) -> tuple[float, float] | None:
        """The share of the path at which texts are likeliest, and their nats per token there.

        Each length has its own path, so this is of runs with one length.
        """
        if len(self.lengths) != 1 or not self.lengths[0].curve or not self.lengths[0].texts:
            return None
        point = min(self.lengths[0].curve, key=lambda one: one.nats_per_token)
        return point.share, point.nats_per_token


@dataclass(frozen=True)
class Evidence:
    """A table of targets, with the uniform distribution and a causal model to compare.

    `uniform` and `causal` are nats per token; the causal model is not told the lengths, but for
    `causal_given_length`, which is estimated.
    """

    targets: tuple[TargetEvidence, ...]
    uniform: float
    texts: int
    causal: float | None = None
    causal_given_length: Estimate | None = None

    def __str__(self) -> str:
        return "\n".join([str(self.table()), *self.notes()])

    def table(self) -> Table:
        """Return the table that a reader sees: a row for each target and length."""
        rows = []
        for target in self.targets:
            bound, error = ("", "") if target.exact else ("≥ ", f" ± {target.error:.3f}")
            for number, one in enumerate(target.lengths, 1):
                first, last = number == 1, number == len(target.lengths) and self.texts > 0
                rows.append([
                    target.energy if first else "",
                    f"{target.temperature:g}" if first else "",
                    f"{one.length}" if one.line is None else f"{one.length} (line {one.line})",
                    "0, exactly" if target.exact else f"{one.log_z:.2f} ± {one.error:.2f}",
                    f"{bound}{target.nats_per_token:.3f}{error}" if last else "",
                    f"{bound}{target.bits_per_byte:.3f}" if last else "",
                    "" if target.exact else "agree" if one.agree else "do not agree",
                ])  # fmt: skip
        return Table(
            "Evidence",
            ["energy", "T", "length", "log Z", "nats per token", "bits per byte", "populations"],
            rows,
        )

    def notes(self) -> list[str]:
        """Return what to know besides the table: what to compare with, and problems."""
        notes = []
        if self.texts:
            notes.append(f"uniform over all tokens: {self.uniform:.3f} nats per token")
        if self.causal is not None and (told := self.causal_given_length):
            notes.append(
                f"the causal model: {self.causal:.3f} nats per token; given the length "
                f"{told.value:.3f} ± {told.error:.3f}"
            )
        for target in self.targets:
            for one in target.lengths:
                where = f"{target.energy}, {one.length} tokens"
                notes += [f"note: {where}: {problem}" for problem in one.problems]
                if (bounds := one.bounds) is not None:
                    notes.append(
                        f"{where}: populations have log Z from {bounds.lower} to {bounds.upper}, a "
                        f"gap of {bounds.upper.value - bounds.lower.value:.2f}, where 0 is exact; "
                        f"those from below {'agree' if bounds.agree else 'do not agree'}"
                    )
            if target.best is not None and self.texts:
                share, nats = target.best
                notes.append(
                    f"best product on the way from ordered to {target.energy}: share {share:.2f}, "
                    f"{nats:.3f} nats per token"
                )
        return notes

    def to_csv(self) -> str:
        """Return a line for each target and length."""
        head = ["energy", "temperature", "length", "line", "texts", "log_z", "error",
                "nats_per_token", "passes", "agree"]  # fmt: skip
        rows = [
            [target.energy, target.temperature, one.length, one.line, one.texts, one.log_z,
             one.error, one.nats / (one.texts * one.length) if one.texts else math.nan, one.passes,
             one.agree]
            for target in self.targets for one in target.lengths
        ]  # fmt: skip
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([head, *rows])
        return text.getvalue()


@dataclass(frozen=True)
class EvidencePlan:
    """How populations are run: how many, how large, and for how many passes.

    They move single sites, and start from ordered fills.
    """

    particles: int = 64
    populations: int = 4
    moves: int = 1
    passes: int | None = None
    seed: int = 0
    bounds: bool = False

    def __post_init__(self) -> None:
        refuse(
            (self.particles < 2, f"--particles must be 2 or more, not {self.particles}."),
            (self.populations < 2, f"--populations must be 2 or more, not {self.populations}."),
            (
                self.passes is not None and self.passes < 1,
                f"--passes must be 1 or more, not {self.passes}.",
            ),
        )


def evidence_as_asked(**given: Any) -> Evidence:
    """Measure as the arguments of `maskov.evidence` say."""
    asked = arguments_of(api.evidence, given)
    names, heats, lengths = map(_several, (asked.energy, asked.target_temperature, asked.length))
    refuse(
        (
            not all(0 < heat < math.inf for heat in heats),
            "every --target-temperature must be above 0.",
        )
    )
    plan = EvidencePlan(
        asked.particles, asked.populations, passes=asked.passes, seed=asked.seed,
        bounds=asked.bounds,
    )  # fmt: skip
    given_model = asked.given_model()
    loading = given_model.loading(asked.token_budget)
    targets = [(energy_of(name, loading), float(heat)) for name in names for heat in heats]
    model = given_model.load(asked.precision)
    if asked.sources:
        model = given_sources(model, asked.sources)
    refuse(
        *(
            (
                not model.min_length <= length <= model.max_length,
                f"'{model.name}' takes {model.min_length} to {model.max_length} tokens, not "
                f"{length} (--length).",
            )
            for length in lengths
        )
    )
    with threads(1, model), torch.inference_mode():
        found = measure(
            model, list(map(str, asked.texts)), targets, plan, lengths, asked.token_budget,
            asked.told,
        )  # fmt: skip
        if asked.causal_model is None:
            return found
        causal = Autoregressive(
            asked.causal_model, loading.device, trust_remote_code=asked.trust_remote_code
        )
        plain, given_length = causal_nats(causal, model, asked.texts, lengths, asked.seed)
        return replace(found, causal=plain, causal_given_length=given_length)


def _several(given: Any) -> Sequence[Any]:
    """Return what may be given alone, or several of it, as a sequence; None as an empty one."""
    if given is None:
        return ()
    return given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)


def causal_nats(
    causal: Autoregressive,
    model: MaskedModel,
    texts: Sequence[Any],
    lengths: Sequence[int] = (),
    seed: int = 0,
) -> tuple[float | None, Estimate | None]:
    """Return the nats per token of texts under a causal model: −log p(x), and given the length.

    Given the length n, p(x, end) is divided by the probability P(n) that a text has n tokens, the
    model's own ones; P(n) is estimated by draws of the model.
    """
    chosen = [str(one) for one in texts if not lengths or len(model.encode(str(one))) in lengths]
    if not chosen:
        return None, None
    ids = [causal.tokenise(text) for text in chosen]
    # Of a model with other tokens, too, by the tokens of the masked one: one unit for all.
    tokens = sum(len(model.encode(text)) for text in chosen)
    terms = causal.token_terms([[*line, causal.end] for line in ids])
    plain, ended = (float(sum(one[:until].sum() for one in terms)) for until in (-1, None))
    sizes = torch.tensor([len(line) for line in ids])
    draws = torch.split(torch.arange(_DRAWS, device=model.device), _AT_ONCE)
    rng, longest = CounterRng(seed), int(sizes.max())
    ends = torch.cat([causal.log_ends(longest, each, rng) for each in draws]).exp()[:, sizes].cpu()
    probability = ends.mean(0)
    # One draw counts for all lengths, so its sum over texts is what varies.
    error = float((ends / probability).sum(1).std()) / math.sqrt(_DRAWS)
    given_length = ended + float(probability.log().sum())
    return plain / tokens, Estimate(given_length / tokens, error / tokens)


def measure(
    model: MaskedModel,
    texts: Sequence[str],
    targets: Sequence[tuple[Energy, float]],
    plan: EvidencePlan,
    lengths: Sequence[int] = (),
    budget: int | None = None,
    told: Callable[[str], None] | None = None,
) -> Evidence:
    """Return log Z of each target (an energy and a temperature) and the likelihood of texts.

    Texts are grouped by their length in tokens; with `lengths` only those are taken, and each of
    them is measured even if there are no texts. Under a translation model that was given sources,
    text i is a translation of source i, and each pair has a Z of its own. `told` hears what is done
    next.
    """
    by_length = _by_length(model, texts, lengths)
    scorer, found = Scorer(model, budget), list[TargetEvidence]()
    for energy, temperature in targets:
        each = list[tuple[LengthEvidence, Tensor]]()
        for group, lines in sorted(by_length.items()):
            if told is not None:
                told(f"{energy}, T = {temperature:g}, {group[0]} tokens")
            each.append(_at_length(energy, temperature, group, lines, scorer, plan))
        found.append(_target(energy, temperature, each, by_length))
    uniform = math.log(int((~model.forbidden).sum()))
    return Evidence(tuple(found), uniform, sum(map(len, by_length.values())))


def _by_length(
    model: MaskedModel, texts: Sequence[str], lengths: Sequence[int]
) -> dict[Group, list[tuple[str, list[int]]]]:
    """Return the texts of each length, with their tokens; refuse what has probability zero."""
    sources = model.sources if isinstance(model, ConditionalModel) else None
    pairs = 0 if sources is None else len(sources.texts)
    refuse(
        (
            isinstance(model, ConditionalModel) and (not pairs or len(texts) not in (0, pairs)),
            f"'{model.name}' has {pairs} sources, and there are {len(texts)} texts: give one "
            "translation of each of the --sources.",
        )
    )
    every = range(1) if not pairs else () if texts else range(pairs)
    found: dict[Group, list[tuple[str, list[int]]]] = {
        (length, source): [] for length in lengths for source in every
    }
    for number, text in enumerate(texts, 1):
        tokens = model.encode(text)
        if lengths and len(tokens) not in lengths:
            continue
        refuse(
            (
                not tokens or bool(model.forbidden[tokens].any()),
                f"line {number} is empty or holds a token that is never sampled, such as an "
                "unknown one: its probability is zero. Take the line out.",
            )
        )
        found.setdefault((len(tokens), number - 1 if pairs else 0), []).append((text, tokens))
    refuse((not found, "there is nothing to measure: give texts, or --length."))
    return found


def _at_length(
    energy: Energy,
    temperature: float,
    group: Group,
    lines: list[tuple[str, list[int]]],
    scorer: Scorer,
    plan: EvidencePlan,
) -> tuple[LengthEvidence, Float[Tensor, " texts"]]:
    """Return the evidence of a target at one length, and E/T of each text."""
    length, source = group
    line = source + 1 if isinstance(scorer.model, ConditionalModel) else None
    kernel = Population(
        Metropolis(energy, target_temperature=temperature),
        Ordered(),
        plan.particles,
        moves=plan.moves,
    )
    known = _known(kernel, [tokens for _, tokens in lines], group, scorer)
    values = kernel.bridge(1.0).total(known) if lines else torch.zeros(0, dtype=torch.float64)
    if isinstance(energy, Ordered) and temperature == 1:
        bounds = _bounds(energy, group, scorer, plan) if plan.bounds else None
        return LengthEvidence(
            length, len(lines), 0.0, 0.0, float(values.sum()), 0.0, True, (), bounds=bounds,
            line=line,
        ), values  # fmt: skip
    kernel = _with_path(kernel, group, scorer, plan)
    summary, passes = _populations(kernel, group, scorer, plan)
    return LengthEvidence(
        length, len(lines), summary.log_z.value, summary.log_z.error, float(values.sum()), passes,
        not summary.problems, tuple(summary.problems), _curve(kernel, summary, known, length),
        line=line,
    ), values  # fmt: skip


def _with_path(kernel: Population, group: Group, scorer: Scorer, plan: EvidencePlan) -> Population:
    """Return the population with the path that a pilot finds for it."""
    return with_path(
        kernel, _blank(scorer.model, group, PILOTS, FIRST_CHAIN), scorer, CounterRng(plan.seed),
        plan.passes,
    )  # fmt: skip


def _populations(
    kernel: Population, group: Group, scorer: Scorer, plan: EvidencePlan
) -> tuple[PopulationSummary, float]:
    """Take populations along the path; return what they say, and the passes of a particle."""
    count, before, rng = plan.particles * plan.populations, scorer.passes, CounterRng(plan.seed)
    chains = kernel.first(_blank(scorer.model, group, count), scorer, rng)
    weights, rounds = [], PopulationRounds(scorer, rng, group[0], group[0])
    for epoch in range(len(kernel.path)):
        chains = rounds.after(kernel.at(epoch, None, None), chains)
        weights.append(chains.log_weight.cpu().numpy())
        scorer.check()
    last = kernel.energy.total(chains.part_values.values)  # type: ignore[union-attr]
    cut = (plan.populations, plan.particles)
    summary = PopulationSummary(
        np.stack(weights).reshape(-1, *cut), chains.ancestor.cpu().numpy().reshape(cut),
        last.cpu().numpy().reshape(cut), moves=kernel.moves * len(kernel.path), positions=group[0],
    )  # fmt: skip
    return summary, (scorer.passes - before) / count


def _bounds(energy: Ordered, group: Group, scorer: Scorer, plan: EvidencePlan) -> Bounds:
    """Return what populations say of a target whose draws are exact, from either end of a path.

    Those that go from its draws back to the start estimate 1/Z without bias.
    """
    start = Ordered() if energy != Ordered() else replace(energy, seed=energy.seed + 1)
    kernel = Population(Metropolis(energy), start, plan.particles, moves=plan.moves)
    forward = _with_path(kernel, group, scorer, plan)
    below, _ = _populations(forward, group, scorer, plan)
    above, _ = _populations(backward(forward), group, scorer, replace(plan, seed=plan.seed + 1))
    upper = replace(above.log_z, value=-above.log_z.value)
    return Bounds(below.log_z, upper, not below.problems, tuple(below.problems))


def _curve(
    kernel: Population, summary: PopulationSummary, known: Tensor, length: int
) -> tuple[Point, ...]:
    """Return what texts have at each point of the path, from its start on."""
    found, shares = [], (0.0, *kernel.path)
    for number, share in enumerate(shares):
        part = replace(summary, log_weight=summary.log_weight[:number])
        log_z = part.log_z.value if number else 0.0
        energy = float(kernel.bridge(share).total(known).mean()) if len(known) else math.nan
        found.append(Point(share, log_z, (energy + log_z) / length))
    return tuple(found)


def _known(
    kernel: Population, lines: list[list[int]], group: Group, scorer: Scorer
) -> Float[Tensor, "texts parts"]:
    """Return the values of all parts of the energies along the path, for each text."""
    if not lines:
        return torch.zeros((0, 0), dtype=torch.float64)
    tokens = torch.tensor(lines, device=scorer.model.device)
    chains = replace(_blank(scorer.model, group, len(lines)), tokens=tokens)
    found = kernel.init(chains, scorer).part_values
    scorer.check()
    assert found is not None
    return found.values.cpu()


def _blank(model: MaskedModel, group: Group, count: int, first: int = 0) -> Chains:
    """Return so many masked sequences of a length, translations of one source if there is any."""
    length, source = group
    tokens = torch.full((count, length), model.mask_id, device=model.device)
    chain = torch.arange(count, device=model.device) + first
    return Chains.at(tokens, chain, source=torch.full_like(chain, source))


def _target(
    energy: Energy,
    temperature: float,
    known: list[tuple[LengthEvidence, Tensor]],
    by_length: dict[Group, list[tuple[str, list[int]]]],
) -> TargetEvidence:
    """Add up the lengths of a target, each with E/T of its texts."""
    each = [one for one, _ in known]
    tokens = sum(one.texts * one.length for one in each)
    size = sum(len(text.encode()) for lines in by_length.values() for text, _ in lines)
    if not tokens:
        nats = error = text_error = bits = math.nan
    else:
        total = sum(one.nats for one in each)
        nats, bits = total / tokens, total / (math.log(2) * size)
        error = math.sqrt(sum((one.texts * one.error) ** 2 for one in each)) / tokens
        rates = torch.cat([(values + one.log_z) / one.length for one, values in known])
        text_error = float(rates.std()) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan
    exact = isinstance(energy, Ordered) and temperature == 1
    return TargetEvidence(
        str(energy), temperature, tuple(each), nats, error, text_error, bits, exact
    )


def draw(found: Evidence, path: Path) -> None:
    """Draw the nats per token along the path to each target, as the ending of the file says."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("a picture needs matplotlib: pip install matplotlib.") from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for target in found.targets:
        for one in target.lengths:
            if one.curve and one.texts:
                name = f"{target.energy}, T = {target.temperature:g}, {one.length} tokens"
                shares, nats = zip(*((p.share, p.nats_per_token) for p in one.curve), strict=True)
                axes.plot(shares, nats, "-o", markersize=4, label=name)
        if target.exact and found.texts:
            axes.axhline(target.nats_per_token, linewidth=1, linestyle="--", label=target.energy)
    if found.causal is not None:
        axes.axhline(found.causal, linewidth=1, linestyle=":", color="grey", label="causal model")
    axes.set(xlabel="share b of the target in q^(1−b) · exp(−bE/T)", ylabel="nats per token")
    axes.legend(frameon=False)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write the picture '{path}': {reason_of(error)}.") from error
