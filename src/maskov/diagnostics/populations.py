"""What independent populations say: log Z, how well they agree, and the errors of any mean.

Populations share nothing but the path, so plain standard errors over them hold. Each estimates Z
without bias; so the mean of these estimates does, and log Z is a lower bound up to chance: it is
too high by more than t with probability e^−t at most.

Agreement alone says little: populations that move too little all miss the same part of the target.
So every second population moves several times as long (`maskov.kernels.population`), and what
these find more must be small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.diagnostics.convergence import chain_templates
from maskov.diagnostics.tokens import Names, Tokens
from maskov.diagnostics.verdict import Verdict
from maskov.types import Traces

Reals = npt.NDArray[np.float64]

# Populations agree if the estimates of log Z spread no more than this, and no test finds a
# difference between their energies at this level; each must have so many ancestors left.
MOST_SPREAD, LEVEL, LEAST_ANCESTORS = 0.3, 0.01, 5
# Two of either kind: otherwise nothing tells what the longer ones find more from chance.
LEAST_POPULATIONS = 4
# How much more log Z the longer populations may find, the error of that included.
MOST_GAIN = 0.5
# Stands in for a token where a sequence is over.
_BEYOND = -1
# Tokens of a position whose shares are told, the most frequent first.
MOST_TOKENS = 5


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error over populations (not-a-number if there is only one)."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


@dataclass(frozen=True)
class PopulationSummary:
    """Independent populations of one target.

    `log_weight` are the log-weights of each particle at each point of the path, before it was drawn
    again; `ancestor` is the first particle that each of the last ones descends from. `first` is the
    number of the first population: those with odd numbers moved longer. `moves` are those of a
    particle of the shorter ones along the path, for so many free `positions`; 0 if unknown.
    """

    log_weight: Reals  # points × populations × particles
    ancestor: npt.NDArray[np.int64]  # populations × particles
    energy: Reals  # populations × particles
    first: int = 0
    moves: int = 0
    positions: int = 0

    @property
    def particles(self) -> int:
        """The particles of each population."""
        return int(self.ancestor.shape[1])

    @property
    def log_z_each(self) -> Reals:
        """The estimate of each population: the sum over the path of log mean weights."""
        return np.asarray(_log_mean(self.log_weight, axis=2).sum(axis=0))

    @property
    def log_z(self) -> Estimate:
        """Log of the mean estimate of Z; its error, and that of log Z, is relative to Z."""
        value = float(_log_mean(self.log_z_each, axis=0))
        return Estimate(value, _standard_error(np.exp(self.log_z_each - value)))

    @property
    def spread(self) -> float:
        """The standard deviation of log Z between populations."""
        each = self.log_z_each
        return float(each.std(ddof=1)) if len(each) > 1 else math.nan

    @property
    def gain(self) -> Estimate:
        """How much higher log Z is in the populations that moved longer.

        Its error is by the spread of either kind, and unknown if there is only one of each.
        """
        each = self.log_z_each
        if len(each) < 2:
            return Estimate(math.nan, math.nan)
        kinds = each[self.first % 2 :: 2], each[1 - self.first % 2 :: 2]
        within = sum(float(((kind - kind.mean()) ** 2).sum()) for kind in kinds)
        free = len(each) - 2
        variance = within / free * sum(1 / len(kind) for kind in kinds) if free else math.nan
        return Estimate(float(kinds[1].mean() - kinds[0].mean()), math.sqrt(variance))

    @property
    def ancestors(self) -> list[int]:
        """How many of its first particles each population descends from."""
        return [len(np.unique(row)) for row in self.ancestor]

    @property
    def effective(self) -> Reals:
        """The share of particles that were effective at each point, over all populations."""
        weight = np.exp(self.log_weight - self.log_weight.max(axis=2, keepdims=True))
        share = weight.sum(2) ** 2 / (weight**2).sum(2) / self.particles
        return np.asarray(share.mean(axis=1))

    def mean(self, values: Reals) -> Estimate:
        """Return the mean of a number of each particle (populations × particles), and its error.

        A population counts in proportion to its estimate of Z, as a single larger one would.
        """
        weight = np.exp(self.log_z_each - self.log_z_each.max())
        weight = weight / weight.sum()
        means = values.mean(axis=1)
        value = float((weight * means).sum())
        count = len(means)
        if count < 2:
            return Estimate(value, math.nan)
        scatter = ((weight * (means - value)) ** 2).sum() * count / (count - 1)
        return Estimate(value, math.sqrt(float(scatter)))

    @property
    def disagreement(self) -> float:
        """The p-value of a test that all populations have one mean energy.

        Particles of one ancestor are alike, so families are compared, not particles: each counts
        with its mean, in proportion to its size.
        """
        from scipy.special import chdtrc  # slow to import

        if len(self.energy) < 2:
            return math.nan
        means, errors = [], []
        for energy, ancestor in zip(self.energy, self.ancestor, strict=True):
            names, family = np.unique(ancestor, return_inverse=True)
            means.append(float(energy.mean()))
            apart = np.bincount(family, energy - means[-1]) / len(energy)
            count = len(names)
            errors.append((apart**2).sum() * count / (count - 1) if count > 1 else math.inf)
        precision = 1 / np.maximum(np.array(errors), 1e-300)
        if not precision.any():
            return math.nan
        centre = (precision * means).sum() / precision.sum()
        chi2 = float((precision * (np.array(means) - centre) ** 2).sum())
        return float(chdtrc(len(means) - 1, chi2))

    @property
    def problems(self) -> list[str]:
        """What speaks against these populations, each with what to try; empty if they agree."""
        count, gain = len(self.energy), self.gain
        fewest, p_value = min(self.ancestors), self.disagreement
        gains = gain.value + gain.error > MOST_GAIN
        more = (
            f"populations that moved longer find {gain} more log Z (at most {MOST_GAIN}, with the "
            "error): use more --passes"
        )
        rules = [
            # Where even the longer ones hardly move, they find no more than the others.
            (
                self.moves < self.positions,
                f"particles made {self.moves} moves for {self.positions} positions (at least one "
                "each): use more --passes",
            ),
            # A gain that stands out says more than the spread; one in the noise says less.
            (gains and gain.value > gain.error, more),
            (
                count < LEAST_POPULATIONS,
                f"{count} {'population is' if count == 1 else 'populations are'} too few to "
                f"compare those that moved longer with the others (at least {LEAST_POPULATIONS}): "
                "use more --populations",
            ),
            (
                count > 1 and not self.spread <= MOST_SPREAD,
                f"log Z differs by {self.spread:.2f} between populations (at most {MOST_SPREAD}): "
                "use more --particles or --passes",
            ),
            (gains and not gain.value > gain.error, more),
            (
                fewest < LEAST_ANCESTORS,
                f"a population descends from {fewest} of its {self.particles} first particles (at "
                f"least {LEAST_ANCESTORS}): use more --particles or --passes",
            ),
            (
                p_value < LEVEL,
                f"mean energies differ between populations (p = {p_value:.1g}): use more --passes",
            ),
        ]
        return [problem for holds, problem in rules if holds]


@dataclass(frozen=True)
class TokenShare:
    """How often a token stands at a position, which counts from 0, and the error of that."""

    position: int
    token: str
    share: float
    error: float


@dataclass(frozen=True)
class LengthShare:
    """One of several lengths: log Z over its sequences with its relative error, and its share."""

    length: int
    log_z: float
    error: float
    share: float


@dataclass(frozen=True)
class PopulationFigures:
    """What the populations of one line of input say, as plain data.

    `log_z` is the log of the mean estimate of Z with its relative `error`; `spread` the standard
    deviation of log Z between populations.
    `gain` is how much higher log Z is in the populations that moved longer, with `gain_error`.
    `effective` is the smallest share of effective particles at a point of the path, `p_value` that
    of a test that all populations have one mean energy. `tokens` are the most frequent ones of each
    position that varied; none if they were not traced. Where particles have several lengths,
    `lengths` are those that are left, and `log_z` is of the mean of Z over all of them.
    """

    template: int
    particles: int
    log_z: float
    error: float
    each: list[float]
    spread: float
    gain: float
    gain_error: float
    ancestors: list[int]
    effective: float
    energy: float
    energy_error: float
    p_value: float
    problems: list[str]
    tokens: list[TokenShare]
    lengths: list[LengthShare]


def population_figures(
    manifest: Manifest, traces: Traces, names: Names = dict
) -> list[PopulationFigures]:
    """Return the figures of each line of input, once its populations are at the end of the path.

    `names` returns the texts of tokens by number.
    """
    if not traces["steps"][-1].all():
        return []
    templates, found = chain_templates(manifest), []
    shortest, longest = manifest.config.inputs.length or (0, 0)
    for template in np.unique(templates):
        mine = templates == template
        tokens = traces["tokens"][:, mine] if "tokens" in traces else np.zeros((1, 1, 0), np.int32)
        lengths = traces["lengths"][:, mine]
        tokens = np.where(np.arange(tokens.shape[2]) < lengths[..., None], tokens, _BEYOND)
        # Words of a template never vary.
        varied = np.flatnonzero((tokens != tokens[:1, :1]).any((0, 1))).tolist()
        cut = (-1, manifest.particles)  # neighbouring chains into populations
        one = PopulationSummary(
            traces["log_weight"][:, mine].reshape(len(lengths), *cut),
            traces["ancestor"][-1, mine].reshape(cut),
            traces["energy_target"][-1, mine].reshape(cut),
            int(mine.argmax()) // manifest.particles, int(traces["steps"][:, mine].sum(0).min()),
            len(varied),
        )  # fmt: skip
        log_z, energy = one.log_z, one.mean(one.energy)
        found.append(
            PopulationFigures(
                int(template), one.particles, log_z.value, log_z.error, one.log_z_each.tolist(),
                one.spread, one.gain.value, one.gain.error, one.ancestors,
                float(one.effective.min()), energy.value, energy.error, one.disagreement,
                one.problems,
                [share for place in varied
                 for share in token_shares(one, place, tokens[-1, :, place], names())],
                by_length(one, lengths[-1], longest - shortest + 1) if longest > shortest else [],
            )
        )  # fmt: skip
    return found


def token_shares(
    summary: PopulationSummary, position: int, tokens: Tokens, texts: dict[int, str]
) -> list[TokenShare]:
    """Return the shares of the most frequent tokens that particles hold at a position."""
    held, found = tokens.reshape(summary.ancestor.shape), []
    kinds, counts = np.unique(held[held != _BEYOND], return_counts=True)
    for token in kinds[np.argsort(-counts, kind="stable")[:MOST_TOKENS]].tolist():
        share = summary.mean((held == token).astype(np.float64))
        text = texts.get(token, f"token {token}")
        found.append(TokenShare(position, text, share.value, share.error))
    # Populations count in proportion to Z, not by their number of particles.
    return sorted(found, key=lambda one: -one.share)


def by_length(
    summary: PopulationSummary, lengths: npt.NDArray[np.int64], count: int
) -> list[LengthShare]:
    """Return log Z of each length that particles have, of `count` that were drawn evenly.

    What a population says of Z times the share of a length in it is unbiased, too.
    """
    held, log_z, found = lengths.reshape(summary.ancestor.shape), summary.log_z.value, []
    for length in np.unique(held).tolist():
        each = np.exp(summary.log_z_each - log_z) * (held == length).mean(axis=1)
        share = float(each.mean())
        error = _standard_error(each) / share
        found.append(LengthShare(length, log_z + math.log(count * share), error, share))
    return found


def population_verdict(manifest: Manifest, figures: list[PopulationFigures]) -> Verdict:
    """Return the verdict: populations agree within the bounds above, or what speaks against it."""
    if not figures:
        return Verdict("too short to tell", "the populations are not at the end of their path")
    bad = [one for one in figures if one.problems]
    if bad:
        reason, _, advice = bad[0].problems[0].rpartition(": use ")
        return Verdict("not converged", reason, advice=advice)
    worst = max(figures, key=lambda one: one.spread)
    ancestors = min(min(one.ancestors) for one in figures)
    return Verdict(
        "converged",
        f"{len(worst.each)} independent populations agree: log Z = {worst.log_z:.2f} ± "
        f"{worst.error:.2f}, {ancestors} ancestors at least",
        1.0,
    )


def _log_mean(values: Reals, axis: int) -> Reals:
    return np.asarray(np.logaddexp.reduce(values, axis=axis) - math.log(values.shape[axis]))


def _standard_error(values: Reals) -> float:
    count = len(values)
    return float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
