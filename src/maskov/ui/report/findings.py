"""What the diagnostics say of a run, as a report shows it: the only place that asks them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from maskov.diagnostics import EnergyFigures, PositionFigures
from maskov.runs import Run

_GOOD, _BAD = ("converged",), ("not converged", "no target", "constant", "forced")


@dataclass(frozen=True)
class Correlation:
    """An autocorrelation by lag, lags counted in epochs."""

    name: str
    lags: list[int]
    values: list[float]


@dataclass(frozen=True)
class Mixing:
    """How well chains agree on a quantity and how fast they forget it; `time` is in epochs."""

    name: str
    r_hat: float | None
    ess_bulk: float | None
    ess_tail: float | None
    mean: float | None
    mcse: float | None
    time: float | None
    at_least: bool


@dataclass(frozen=True)
class PositionCurve:
    """Acceptance and novelty along the positions, counted from 1, over all templates."""

    positions: list[int]
    accepted: list[float]
    novel: list[float]
    visits: list[int]
    templates: int


@dataclass(frozen=True)
class Findings:
    """A verdict and its reason, whether it is `good`, `bad` or `open`, and what it rests on."""

    verdict: str
    reason: str
    tone: str
    invariant: bool
    mixing: list[Mixing]
    correlations: list[Correlation]
    positions: PositionCurve | None
    notes: list[str]


def findings(run: Run) -> Findings:
    """Ask the diagnostics."""
    found = run.diagnose()
    state, tokens = found.verdict.state, found.tokens
    spacing = {name: one.spacing or 1 for name, one in found.energies.items()}
    correlations = [
        _correlation(name, one.autocorrelation, spacing[name])
        for name, one in found.energies.items()
    ]
    mixing = [_mixing(name, one) for name, one in found.energies.items()]
    if tokens is not None:
        correlations.append(_correlation("tokens", tokens.autocorrelation, 1))
        nothing = (None,) * 5
        mixing.append(Mixing("tokens", *nothing, tokens.time, tokens.at_least))
    return Findings(
        verdict=state,
        reason=found.verdict.reason,
        tone="good" if state in _GOOD else "bad" if state in _BAD else "open",
        invariant=run.manifest.leaves_invariant,
        mixing=mixing,
        correlations=[one for one in correlations if one is not None],
        positions=None if tokens is None else _pooled(tokens.positions),
        notes=found.notes,
    )


def _mixing(name: str, one: EnergyFigures) -> Mixing:
    sizes = (one.ess_bulk, one.ess_tail)
    return Mixing(name, one.r_hat, *sizes, one.mean, one.mcse, one.time, one.at_least)


def _correlation(name: str, values: Sequence[float] | None, spacing: int) -> Correlation | None:
    if not values:
        return None
    return Correlation(name, [lag * spacing for lag in range(len(values))], list(values))


def _pooled(figures: Sequence[PositionFigures]) -> PositionCurve | None:
    """Join templates position by position, each visit counting once."""
    visits: dict[int, int] = defaultdict(int)
    accepted: dict[int, float] = defaultdict(float)
    novel: dict[int, float] = defaultdict(float)
    for one in figures:
        if one.visits is None or one.acceptance is None or one.novel is None:
            continue
        rows = zip(one.positions, one.visits, one.acceptance, one.novel, strict=True)
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
