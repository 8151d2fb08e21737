"""One sentence on whether a run's chains have converged, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from maskov.config import Manifest
from maskov.diagnostics.energies import EnergyFigures
from maskov.diagnostics.statistics import TokenStatistic
from maskov.diagnostics.thresholds import (
    MAX_FACTOR,
    MIN_DRAWS,
    R_HAT_BORDERLINE,
    R_HAT_DISAGREE,
    R_HAT_GOOD,
    Limits,
    times_longer,
)


@dataclass(frozen=True)
class Verdict:
    """A `state`, the reason for it, and how many times longer the run should be.

    The states: no target, annealed, forced, too short to tell, constant, not judged, one chain,
    single chains, not converged, borderline, converged.
    """

    state: str
    reason: str
    times_longer: float | None = None

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}"


@dataclass(frozen=True)
class Measured:
    """R-hat and effective draws of an energy or of a token statistic, and what they should be.

    `ess` is that of all chains of the run, if all mix as those in which it was measured.
    """

    name: str
    r_hat: float
    ess: float
    limits: Limits


def judge(
    manifest: Manifest,
    energies: Mapping[str, EnergyFigures],
    statistics: Sequence[TokenStatistic] = (),
) -> Verdict:
    """Return the verdict; the first obstacle to convergence is the reason."""
    return (
        _no_target(manifest)
        or _no_numbers(energies)
        or _numbers(manifest, energies, measured(manifest, energies, statistics))
    )


def measured(
    manifest: Manifest,
    energies: Mapping[str, EnergyFigures],
    statistics: Sequence[TokenStatistic] = (),
) -> list[Measured]:
    """Return every energy whose numbers are known, and the token statistics in their order."""
    limits = Limits.of(manifest)
    found = []
    for name, energy in energies.items():
        sizes = [size for size in (energy.ess_bulk, energy.ess_tail) if size is not None]
        if energy.r_hat is not None and sizes:
            found.append(Measured(name, energy.r_hat, min(sizes), limits))
    # The worst of many statistics is above the strict limit by chance alone.
    wide = replace(limits, r_hat=R_HAT_BORDERLINE)
    for one in statistics:
        found.append(Measured(one.name, one.r_hat, one.ess_per_chain * manifest.chains, wide))
    return found


def shown_r_hat(r_hat: float) -> str:
    """Return R-hat with enough digits to be told from 1 and from the limits."""
    if math.isinf(r_hat):
        return "infinite"
    return f"{r_hat:.4f}" if r_hat < R_HAT_GOOD else f"{r_hat:.3f}"


def rounded(factor: float) -> str:
    """Round up to the precision of such an estimate: halves, then whole numbers, then tens."""
    step = 0.5 if factor < 3 else 1 if factor < 10 else 10
    return f"{math.ceil(factor / step) * step:g}"


def _no_target(manifest: Manifest) -> Verdict | None:
    if manifest.leaves_invariant:
        return None
    schedule, name = manifest.schedule, manifest.kernel
    if name == "mh" and not replace(schedule, force_accept=0).fixed_target():
        return Verdict(
            "annealed", "the temperature changes after burn-in, so there is no fixed target"
        )
    if name == "mh" and schedule.force_accept > schedule.burn_in:
        return Verdict("forced", "acceptance is forced after burn-in, so there is no target")
    shown = "degenerate Gibbs" if name == "gibbs" else name
    return Verdict(
        "no target",
        f"{shown} leaves no target invariant: these numbers describe the chain, not a target",
    )


def _no_numbers(energies: Mapping[str, EnergyFigures]) -> Verdict | None:
    draws = min(energy.draws for energy in energies.values())
    if draws < MIN_DRAWS:
        return Verdict(
            "too short to tell",
            f"{draws} traced epochs after burn-in (at least {MIN_DRAWS} are needed)",
        )
    for name, energy in energies.items():
        constant, groups = energy.constant_groups, len(energy.groups)
        if constant:
            where = "" if constant == groups else f" in {constant} of {groups} groups of chains"
            return Verdict("constant", f"{name} never moved{where}")
    for name, energy in energies.items():
        if energy.r_hat is None or energy.ess_bulk is None:
            return Verdict("not judged", f"{name} has too few distinct values for R-hat")
    return None


def _numbers(
    manifest: Manifest, energies: Mapping[str, EnergyFigures], numbers: Sequence[Measured]
) -> Verdict:
    worst = max(numbers, key=lambda one: one.r_hat)
    least = min(numbers, key=lambda one: one.ess)
    groups = [group for energy in energies.values() for group in energy.groups]
    if manifest.chains == 1:
        return Verdict(
            "one chain",
            "R-hat compares chains; run several (R-hat of its halves: "
            f"{shown_r_hat(worst.r_hat)} of {worst.name})",
        )
    if all(group.chains == 1 for group in groups):
        return Verdict(
            "single chains",
            "no two chains have the same length and template, so R-hat can only compare the "
            f"halves of each (worst: {shown_r_hat(worst.r_hat)} of {worst.name}); run several of "
            "each",
        )
    factor = max(times_longer(one.r_hat, one.ess, one.limits) for one in numbers)
    r_hat = f"R-hat {shown_r_hat(worst.r_hat)} of {worst.name}"
    helps = worst.r_hat < R_HAT_DISAGREE and factor <= MAX_FACTOR
    advice = (
        f"run about {rounded(factor)} times longer"
        if helps
        else "more epochs of this kind may not help"
    )
    longer = factor if math.isfinite(factor) else None
    if worst.r_hat >= R_HAT_BORDERLINE:
        return Verdict("not converged", f"{r_hat}; {advice}", longer)
    above = [one for one in numbers if one.r_hat >= one.limits.r_hat]
    if above:
        one = max(above, key=lambda one: one.r_hat)
        named = f"R-hat {shown_r_hat(one.r_hat)} of {one.name}, not below {one.limits.r_hat}"
        return Verdict("borderline", f"{named}; {advice}", longer)
    if least.ess < least.limits.ess:
        few = f"{least.ess:.0f} effective draws of {least.name}"
        reason = f"{few} (at least {least.limits.ess:.0f} are needed); {advice}"
        return Verdict("borderline", reason, longer)
    reason = f"{r_hat} at most, {least.ess:.0f} effective draws of {least.name} at least"
    return Verdict("converged", reason, 1.0)
