"""The diagnostics of a run, as a report shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from maskov.diagnostics import (
    EnergyFigures,
    ExchangeFigures,
    ExpertFigures,
    PositionFigures,
    headline,
    tone,
)
from maskov.runs import Run


@dataclass(frozen=True)
class Correlation:
    """An autocorrelation by lag, lags counted in epochs."""

    name: str
    lags: list[int]
    values: list[float]


@dataclass(frozen=True)
class Mixing:
    """Convergence of a quantity; `time` is its autocorrelation time in epochs."""

    name: str
    r_hat: float | None
    r_hat_limit: float | None
    ess_bulk: float | None
    ess_tail: float | None
    mean: float | None
    mcse: float | None
    time: float | None
    at_least: bool


@dataclass(frozen=True)
class PositionCurve:
    """Acceptance and novelty by position, counted from 1, over all templates."""

    positions: list[int]
    accepted: list[float]
    novel: list[float]
    visits: list[int]
    templates: int


@dataclass(frozen=True)
class Findings:
    """A verdict with its reason and tone (`good`, `bad` or `open`), and the numbers behind it.

    `headline` tells the rule, which may be exact, from the run, which may be too short.
    `advice` says what to try next, or is empty.
    `experts` has a row for each expert: its name, weight, mean energy and calls per step.
    `exchange` has the swap rates of replicas and their round trips, each with its name.
    """

    verdict: str
    headline: str
    reason: str
    advice: str
    tone: str
    invariant: bool
    mixing: list[Mixing]
    correlations: list[Correlation]
    positions: PositionCurve | None
    experts: list[tuple[str, str, str, str]]
    exchange: list[tuple[str, str]]
    notes: list[str]


def findings(run: Run) -> Findings:
    """Run the diagnostics."""
    diagnosis = run.diagnose()
    tokens = diagnosis.tokens
    correlations = [
        _correlation(name, figures.autocorrelation, figures.spacing or 1)
        for name, figures in diagnosis.energies.items()
    ]
    mixing = [_mixing(name, figures) for name, figures in diagnosis.energies.items()]
    mixing += [_mixing(expert.name, expert.energy) for expert in diagnosis.experts]
    if tokens is not None:
        correlations.append(_correlation("tokens", tokens.autocorrelation, 1))
        nothing = (None,) * 6
        mixing.append(Mixing("tokens", *nothing, tokens.time, tokens.at_least))
        for label, one in tokens.extremes().items():
            sizes = one.ess, None, one.mean, None, None, False
            mixing.append(Mixing(label, one.r_hat, one.r_hat_limit, *sizes))
    return Findings(
        verdict=diagnosis.verdict.state,
        headline=headline(diagnosis),
        reason=diagnosis.verdict.reason,
        advice=diagnosis.verdict.advice,
        tone=tone(diagnosis),
        invariant=run.manifest.leaves_invariant,
        mixing=mixing,
        correlations=[curve for curve in correlations if curve is not None],
        positions=None if tokens is None else _pooled(tokens.positions),
        experts=[_expert(expert) for expert in diagnosis.experts],
        exchange=[] if diagnosis.exchange is None else _exchange(diagnosis.exchange),
        notes=diagnosis.notes,
    )


def _expert(figures: ExpertFigures) -> tuple[str, str, str, str]:
    numbers = (
        (figures.weight, "g"), (figures.energy.mean, ".2f"), (figures.calls_per_step, ".2f")
    )  # fmt: skip
    weight, mean, calls = ("–" if one is None else format(one, form) for one, form in numbers)
    return figures.name, weight, mean, calls


def _exchange(figures: ExchangeFigures) -> list[tuple[str, str]]:
    pairs = zip(figures.ladder, figures.ladder[1:], figures.swap_rates, strict=False)
    rows = [(f"swaps, β {one:g} and {other:g}", rate, ".3f") for one, other, rate in pairs]
    rows.append(("round trips per 1,000 epochs", figures.round_trips_per_1000_epochs, ".1f"))
    return [(name, "–" if value is None else format(value, form)) for name, value, form in rows]


def _mixing(name: str, figures: EnergyFigures) -> Mixing:
    # Energies of different lengths have no mean in common.
    several = len({group.length for group in figures.groups}) > 1
    return Mixing(
        name,
        figures.r_hat,
        figures.r_hat_limit,
        figures.ess_bulk,
        figures.ess_tail,
        None if several else figures.mean,
        None if several else figures.mcse,
        figures.time,
        figures.at_least,
    )


def _correlation(name: str, values: Sequence[float] | None, spacing: int) -> Correlation | None:
    if not values:
        return None
    return Correlation(name, [lag * spacing for lag in range(len(values))], list(values))


def _pooled(figures: Sequence[PositionFigures]) -> PositionCurve | None:
    """Pool templates by position, weighted by visits."""
    visits: dict[int, int] = defaultdict(int)
    accepted: dict[int, float] = defaultdict(float)
    novel: dict[int, float] = defaultdict(float)
    for rates in figures:
        if rates.visits is None or rates.acceptance is None or rates.novel is None:
            continue
        rows = zip(rates.positions, rates.visits, rates.acceptance, rates.novel, strict=True)
        for position, count, share, new in rows:
            visits[position] += count
            accepted[position] += share * count
            novel[position] += new * count
    shown = sorted(position for position, count in visits.items() if count)
    if not shown:
        return None
    return PositionCurve(
        [position + 1 for position in shown],
        [accepted[position] / visits[position] for position in shown],
        [novel[position] / visits[position] for position in shown],
        [visits[position] for position in shown],
        len(figures),
    )
