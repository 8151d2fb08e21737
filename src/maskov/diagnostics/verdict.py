"""One sentence on whether a run's chains have converged, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from maskov.config import Manifest
from maskov.diagnostics.energies import EnergyFigures
from maskov.diagnostics.thresholds import (
    MAX_FACTOR,
    MIN_DRAWS,
    MIN_ESS,
    R_HAT_BORDERLINE,
    R_HAT_GOOD,
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
class _Worst:
    """The worst R-hat and the smallest effective size, and the energies they belong to."""

    r_hat: float
    r_hat_of: str
    ess: float
    ess_of: str

    @property
    def longer(self) -> float:
        return times_longer(self.r_hat, self.ess)

    @property
    def advice(self) -> str:
        if self.longer > MAX_FACTOR:
            return (
                f"more than {MAX_FACTOR:.0f} times as many epochs would be needed: "
                "another proposal or kernel may mix better"
            )
        return f"run about {_rounded(self.longer)} times longer"


def judge(manifest: Manifest, energies: Mapping[str, EnergyFigures]) -> Verdict:
    """Return the verdict; the first obstacle to convergence is the reason."""
    return _no_target(manifest) or _no_numbers(energies) or _numbers(manifest, energies)


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


def _numbers(manifest: Manifest, energies: Mapping[str, EnergyFigures]) -> Verdict:
    worst = _worst(energies)
    groups = [group for energy in energies.values() for group in energy.groups]
    if manifest.chains == 1:
        return Verdict(
            "one chain",
            f"R-hat compares chains; run several (R-hat of its halves: {worst.r_hat:.3g})",
        )
    if all(group.chains == 1 for group in groups):
        return Verdict(
            "single chains",
            "no two chains have the same length and template, so R-hat can only compare the "
            f"halves of each (worst: {worst.r_hat:.3g}); run several of each",
        )
    too_few = (
        f"{worst.ess:.0f} effective draws of {worst.ess_of} (at least {MIN_ESS:.0f} are needed)"
    )
    r_hat = f"R-hat {worst.r_hat:.3g} of {worst.r_hat_of}"
    if worst.r_hat >= R_HAT_BORDERLINE:
        return Verdict("not converged", f"{r_hat}; {worst.advice}", worst.longer)
    if worst.r_hat >= R_HAT_GOOD:
        reason = f"{r_hat}, not below {R_HAT_GOOD}; {worst.advice}"
        return Verdict("borderline", reason, worst.longer)
    if worst.ess < MIN_ESS:
        return Verdict("borderline", f"{too_few}; {worst.advice}", worst.longer)
    return Verdict("converged", f"{r_hat} at most, {worst.ess:.0f} effective draws at least", 1.0)


def _worst(energies: Mapping[str, EnergyFigures]) -> _Worst:
    """Return the worst numbers over all energies."""
    r_hats = [(energy.r_hat, name) for name, energy in energies.items() if energy.r_hat is not None]
    sizes = [
        (size, name)
        for name, energy in energies.items()
        for size in (energy.ess_bulk, energy.ess_tail)
        if size is not None
    ]
    return _Worst(*max(r_hats), *min(sizes))


def _rounded(factor: float) -> str:
    """Round up to the precision of such an estimate: halves, then whole numbers, then tens."""
    step = 0.5 if factor < 3 else 1 if factor < 10 else 10
    return f"{math.ceil(factor / step) * step:g}"
