"""How much longer a run would need for a number of effective draws, or what to try instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maskov.config import Manifest
from maskov.diagnostics.energies import EnergyFigures
from maskov.diagnostics.statistics import TokenStatistic
from maskov.diagnostics.thresholds import MAX_FACTOR, R_HAT_DISAGREE, USEFUL_ESS
from maskov.diagnostics.verdict import Measured, measured, rounded


@dataclass(frozen=True)
class Need:
    """The effective draws of a statistic, and by what factor more epochs would give enough."""

    name: str
    ess: float
    times_longer: float


@dataclass(frozen=True)
class Outlook:
    """What `effective` draws would take of the slowest energy and two token statistics.

    `slowest` and `fastest` are None if there are no token statistics. If the chains `disagree`, or
    mix hopelessly slowly, the factors are lower bounds and `options` names what may help instead.
    """

    effective: int
    energy: Need
    slowest: Need | None
    fastest: Need | None
    disagree: bool
    options: list[str]
    text: str


def outlook(
    manifest: Manifest,
    energies: Mapping[str, EnergyFigures],
    statistics: Sequence[TokenStatistic],
) -> Outlook | None:
    """Return the outlook, or None where the chains have no target or no numbers."""
    shown, tokens = measured(manifest, energies), measured(manifest, {}, statistics)
    if not manifest.leaves_invariant or len(shown) < len(energies):
        return None
    until = manifest.config.until
    effective = USEFUL_ESS if until is None else until.effective
    energy = _need(min(shown, key=lambda one: one.ess), effective)
    slowest, fastest = (_need(tokens[at], effective) if tokens else None for at in (0, -1))
    worst = max(shown + tokens, key=lambda one: one.r_hat)
    least = min((need for need in (energy, slowest) if need is not None), key=lambda one: one.ess)
    disagree = worst.r_hat >= R_HAT_DISAGREE or least.times_longer > MAX_FACTOR
    options = mixing_options(manifest) if disagree else []
    if disagree:
        text = _disagreement(worst, least, options)
    else:
        text = _factors(effective, energy, slowest, fastest)
    return Outlook(effective, energy, slowest, fastest, disagree, options, text)


def mixing_options(manifest: Manifest) -> list[str]:
    """Return the options of the command that may mix better, by what the run has not tried."""
    options = []
    schedule, move = manifest.schedule, _inside(manifest.config.kernel, "move")
    conditional = _inside(move, "conditional")
    if not schedule.burn_in and manifest.config.until is None:
        options.append(f"--burn-in {schedule.epochs // 2}")
    if manifest.kernel != "mh":
        return options
    truncated = conditional.get("top_k") is not None or conditional.get("top_p", 1.0) < 1
    if truncated and not conditional.get("epsilon"):
        options.append("--epsilon 0.05")
    if "span" not in str(manifest.config.kernel).lower():
        options.append("--moves site:1,span:2")
    if "exchange" not in str(manifest.config.kernel).lower():
        options.append("--replicas 4")
    return options


def _inside(data: Any, name: str) -> dict[str, Any]:
    part = data.get(name) if isinstance(data, dict) else None
    return part if isinstance(part, dict) else {}


def _need(one: Measured, effective: int) -> Need:
    return Need(one.name, one.ess, max(1.0, effective / one.ess))


def _disagreement(worst: Measured, slowest: Need, options: Sequence[str]) -> str:
    tried = " or ".join(options) or "another kernel"
    if worst.r_hat >= R_HAT_DISAGREE:
        return f"the chains disagree on {worst.name}: try {tried}"
    return f"{slowest.ess:.0f} effective draws of {slowest.name}, the slowest: try {tried}"


def _factors(effective: int, energy: Need, slowest: Need | None, fastest: Need | None) -> str:
    text = _factor(energy, effective)
    if slowest is None or fastest is None:
        return text
    text += f"; the slowest token statistic is {slowest.name}: {_factor(slowest, effective, False)}"
    if fastest.name != slowest.name:
        text += f"; the fastest is {fastest.name}: {_factor(fastest, effective, False)}"
    return text


def _factor(need: Need, effective: int, named: bool = True) -> str:
    of = f" of {need.name}" if named else ""
    if need.times_longer == 1:
        return f"{need.ess:.0f} effective draws{of}"
    return (
        f"about {rounded(need.times_longer)} × as many epochs for {effective} effective draws{of}"
    )
