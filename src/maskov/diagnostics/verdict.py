"""One plain sentence on whether a run's chains have converged, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from maskov.config import Manifest
from maskov.diagnostics.convergence import NEEDS_ARVIZ, arviz_stats
from maskov.diagnostics.energies import EnergyFigures
from maskov.diagnostics.thresholds import (
    ESS_ENOUGH,
    FEWEST_DRAWS,
    MOST_LONGER,
    R_HAT_BORDERLINE,
    R_HAT_GOOD,
    times_longer,
)


@dataclass(frozen=True)
class Verdict:
    """What to make of a run: a `state`, the reason, and how many times longer it should run.

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
    """The worst R-hat and the smallest effective size, each with the energy it is of."""

    r_hat: float
    r_hat_of: str
    ess: float
    ess_of: str

    @property
    def longer(self) -> float:
        return times_longer(self.r_hat, self.ess)

    @property
    def advice(self) -> str:
        if self.longer > MOST_LONGER:
            return (
                f"more than {MOST_LONGER:.0f} times as many epochs would be needed: "
                "another proposal or kernel may mix better"
            )
        return f"run about {_rounded(self.longer)} times longer"


def judge(manifest: Manifest, energies: Mapping[str, EnergyFigures]) -> Verdict:
    """Return the verdict; the first thing that stands in the way is the reason."""
    return _no_target(manifest) or _no_numbers(energies) or _numbers(manifest, energies)


def _no_target(manifest: Manifest) -> Verdict | None:
    if manifest.leaves_invariant:
        return None
    schedule, name = manifest.schedule, manifest.kernel
    if name == "mh" and not replace(schedule, forced_epochs=0).fixed_target():
        return Verdict("annealed", "there is no fixed target, so no convergence to speak of")
    if name == "mh" and schedule.forced_epochs > schedule.burn_in:
        return Verdict("forced", "acceptance is still forced after burn-in, so there is no target")
    who = {"gibbs": "degenerate Gibbs"}.get(name, name)
    return Verdict(
        "no target",
        f"{who} leaves no target invariant: these numbers describe the chain, not a target",
    )


def _no_numbers(energies: Mapping[str, EnergyFigures]) -> Verdict | None:
    draws = min(one.draws for one in energies.values())
    if draws < FEWEST_DRAWS:
        return Verdict(
            "too short to tell",
            f"{draws} traced epochs after burn-in (at least {FEWEST_DRAWS} are needed)",
        )
    for name, one in energies.items():
        still, every = one.constant_groups, len(one.groups)
        if still:
            where = "" if still == every else f" in {still} of {every} groups of chains"
            return Verdict("constant", f"{name} never moved{where}")
    if arviz_stats() is None:
        return Verdict("not judged", NEEDS_ARVIZ)
    for name, one in energies.items():
        if one.r_hat is None or one.ess_bulk is None:
            return Verdict("not judged", f"{name} takes too few values for an R-hat")
    return None


def _numbers(manifest: Manifest, energies: Mapping[str, EnergyFigures]) -> Verdict:
    worst = _worst(energies)
    alone = all(group.chains == 1 for one in energies.values() for group in one.groups)
    if manifest.chains == 1:
        return Verdict(
            "one chain",
            f"R-hat compares chains; run several (that of its halves is {worst.r_hat:.3g})",
        )
    if alone:
        return Verdict(
            "single chains",
            "no two chains have the same length and template, so R-hat can only compare the "
            f"halves of each (at worst {worst.r_hat:.3g}); run several of each",
        )
    too_few = (
        f"{worst.ess:.0f} effective draws of {worst.ess_of} (at least {ESS_ENOUGH:.0f} are needed)"
    )
    said = f"R-hat {worst.r_hat:.3g} of {worst.r_hat_of}"
    if worst.r_hat >= R_HAT_BORDERLINE:
        return Verdict("not converged", f"{said}; {worst.advice}", worst.longer)
    if worst.r_hat >= R_HAT_GOOD:
        below = f"{said}, not below {R_HAT_GOOD}"
        return Verdict("borderline", f"{below}; {worst.advice}", worst.longer)
    if worst.ess < ESS_ENOUGH:
        return Verdict("borderline", f"{too_few}; {worst.advice}", worst.longer)
    return Verdict("converged", f"{said} at most, {worst.ess:.0f} effective draws at least", 1.0)


def _worst(energies: Mapping[str, EnergyFigures]) -> _Worst:
    """Return the worst of all energies, whose R-hat and effective size are known."""
    r_hats = [(one.r_hat, name) for name, one in energies.items() if one.r_hat is not None]
    sizes = [
        (size, name)
        for name, one in energies.items()
        for size in (one.ess_bulk, one.ess_tail)
        if size is not None
    ]
    return _Worst(*max(r_hats), *min(sizes))


def _rounded(factor: float) -> str:
    """Round up to what such an estimate can tell: halves, then whole numbers, then tens."""
    step = 0.5 if factor < 3 else 1 if factor < 10 else 10
    return f"{math.ceil(factor / step) * step:g}"
