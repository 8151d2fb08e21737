"""Whether a run's chains have converged, why, and what to try next.

A rule that leaves its target invariant is exact, however short the run: headlines tell the two
apart, so that a run that should be longer does not look like a wrong one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskov.config import BURN_IN, Manifest
from maskov.diagnostics.convergence import MIN_DRAWS, R_HAT, Convergence, EnergyFigures
from maskov.diagnostics.tokens import TokenStatistic

# Chains that are enough to compare.
_CHAINS = 8
# Effective draws of a whole run, in the bulk and in the tails, unless a run was given a number.
MIN_ESS = 100
# A run this many times as long is too far from what was measured to be advice.
MAX_FACTOR = 20.0
# The tone of each state: `good`, `open` (more work would help) or `bad` (the samples have no
# target, or never moved); and its headline.
_STATES = {
    "converged": ("good", "The rule is exact, and the run has converged"),
    "not converged": ("open", "The rule is exact; the run is too short"),
    "too short to tell": ("open", "The rule is exact; the run is too short"),
    "constant": ("bad", "The rule is exact; the chains did not move"),
    "one chain": ("open", "The rule is exact; one chain has no other to agree with"),
    "single chains": ("open", "The rule is exact; no two chains can be compared"),
    "not judged": ("open", "The rule is exact; the run cannot be judged"),
    "independent draws": ("good", "The draws are exact and independent"),
    "annealed": ("open", "The temperature still changes: there is no fixed target"),
    "forced": ("bad", "Acceptance is forced: there is no target"),
    "no target": ("bad", "The rule is not exact: its samples have no target"),
}


@dataclass(frozen=True)
class Verdict:
    """A `state`, the reason for it, how many times longer the run should be, and what to try next.

    `times_longer` is None if no length is known to help.
    """

    state: str
    reason: str
    times_longer: float | None = None
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}"

    def lines(self) -> list[str]:
        """Return the sentences that a run ends with: the verdict and the advice, if any."""
        return [str(self), *([f"try next: {self.advice}"] if self.advice else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the tone and the headline."""
        return {**vars(self), "tone": self.tone, "headline": self.headline}

    @property
    def tone(self) -> str:
        """`good`, `open` (more work would help) or `bad`."""
        return _STATES[self.state][0]

    @property
    def headline(self) -> str:
        """Whether the rule is exact, and what the run lacks."""
        if self.state == "not converged" and self.times_longer is None:
            return "The rule is exact; the run has not converged"
        return _STATES[self.state][1]


def judge(
    manifest: Manifest,
    energies: Mapping[str, EnergyFigures],
    statistics: Sequence[TokenStatistic] = (),
) -> Verdict:
    """Return the verdict.

    The first obstacle is the reason, in this order: the kind of rule, numbers, convergence.
    """
    name, schedule = manifest.kernel, manifest.schedule
    if name == "draws":
        return Verdict("independent draws", "each sample was drawn by itself from the energy", 1.0)
    if not manifest.leaves_invariant:
        if name == "mh" and not replace(schedule, force_accept=0).fixed_target():
            return Verdict(
                "annealed",
                "the temperature changes after burn-in, so there is no fixed target",
                advice="a fixed --target-temperature, or --burn-in until it is at its floor",
            )
        if name == "mh" and schedule.force_accept > schedule.burn_in:
            return Verdict(
                "forced",
                "acceptance is forced after burn-in, so there is no target",
                advice=f"--burn-in {schedule.force_accept} or more",
            )
        return Verdict(
            "no target",
            f"{'degenerate Gibbs' if name == 'gibbs' else name} leaves no target invariant: these "
            "numbers describe the chain, not a target",
            advice="--kernel mh, which samples from the energy",
        )
    draws = min(energy.draws for energy in energies.values())
    kept = max(schedule.epochs - schedule.burn_in, 1)
    if draws < MIN_DRAWS:
        # A longer run may burn in for longer.
        enough = max(2 * schedule.epochs, max(schedule.burn_in, BURN_IN) + MIN_DRAWS)
        return Verdict(
            "too short to tell",
            f"{draws} traced epochs after burn-in (at least {MIN_DRAWS} are needed)",
            advice=_epochs(manifest, enough),
        )
    for name, energy in energies.items():
        constant, groups = energy.constant_groups, len(energy.groups)
        if constant:
            where = "" if constant == groups else f" in {constant} of {groups} groups of chains"
            return Verdict("constant", f"{name} never moved{where}", None, _other_moves(manifest))
    for name, energy in energies.items():
        if energy.ess_bulk is None:
            return Verdict(
                "not judged",
                f"{name} has too few distinct values for an effective size",
                advice=_epochs(manifest, schedule.burn_in + 2 * kept),
            )
    if all(energy.r_hat is None for energy in energies.values()):
        more = f"--chains {max(_CHAINS, 2 * manifest.chains)}"
        if manifest.chains == 1:
            return Verdict("one chain", "R-hat compares chains; run several", advice=more)
        return Verdict(
            "single chains",
            "no two chains have the same length and template; run several of each",
            advice=more,
        )
    numbers = measured(manifest, energies, statistics)
    of_worst, worst, _ = max(numbers, key=lambda one: one[1].above)
    of_least, least, needed = min(numbers, key=lambda one: one[1].ess / one[2])
    r_hat = f"nested R-hat {shown(worst.r_hat, '.3f')} of {of_worst}"
    few = f"{least.ess:.0f} effective draws of {of_least}"
    if worst.above < 0 and least.ess >= needed:
        return Verdict("converged", f"{r_hat} at most, {few} at least", 1.0)
    reason = (
        f"{r_hat} (below {shown(worst.r_hat_limit, '.3f')} is needed)"
        if worst.above >= 0
        else f"{few} (at least {needed:.0f} are needed)"
    )
    factor = max(times_longer(one.r_hat, one.ess, needed) for _, one, needed in numbers)
    if factor > MAX_FACTOR:
        return Verdict("not converged", reason, None, _other_moves(manifest))
    longer = _epochs(manifest, schedule.burn_in + math.ceil(factor * kept))
    return Verdict("not converged", reason, factor, longer)


def measured(
    manifest: Manifest,
    energies: Mapping[str, EnergyFigures],
    statistics: Sequence[TokenStatistic] = (),
) -> list[tuple[str, Convergence, float]]:
    """Return every energy and token statistic whose numbers are known, and the draws it needs.

    A statistic that varies in some of the chains needs their share of the effective draws.
    """
    until = manifest.config.until
    needed = MIN_ESS if until is None else until.effective
    found: list[tuple[str, Convergence, float]] = [
        *((name, one, needed) for name, one in energies.items()),
        *((one.name, one, needed * one.chains / manifest.chains) for one in statistics),
    ]
    return [row for row in found if not math.isnan(row[1].ess)]


def shown(value: float | None, form: str = ".2f") -> str:
    """Return a number with a typographic minus sign, "infinite", or a dash where it is unknown."""
    if value is None or math.isnan(value):
        return "–"
    return "infinite" if value == math.inf else format(value, form).replace("-", "−")


def times_longer(r_hat: float | None, ess: float, needed: float) -> float:
    """Return how many times longer a run would have to be to pass both limits; at least 1.

    The effective size grows with the length. Of the variance, chains remember 1 − 1/R-hat², which
    falls exponentially with the length.
    """
    factor = max(1.0, needed / ess)
    if r_hat is None or r_hat <= R_HAT:
        return factor
    remembered = 1 - 1 / r_hat**2
    if remembered == 1:
        return math.inf
    return max(factor, math.log(1 - 1 / R_HAT**2) / math.log(remembered))


def mixing_options(manifest: Manifest) -> list[str]:
    """Return the options of the command that may mix better, by what the run has not tried."""
    schedule, kernel = manifest.schedule, str(manifest.config.kernel).lower()
    conditional = part_of(manifest.config.kernel, "move", "conditional")
    truncated = conditional.get("top_k") is not None or conditional.get("top_p", 1.0) < 1
    metropolis = manifest.kernel == "mh"
    options = {
        f"--burn-in {schedule.epochs // 2}": not schedule.burn_in and not manifest.config.until,
        "--proposal epsilon=0.05": metropolis and truncated and not conditional.get("epsilon"),
        "--moves site:1,span:2": metropolis and "span" not in kernel,
        # Particles begin at draws of the model and keep their lengths.
        "--particles 64": metropolis and not manifest.inputs.texts and not manifest.inputs.sampled,
    }
    return [option for option, untried in options.items() if untried]


def part_of(description: Any, *names: str) -> dict[str, Any]:
    """Return a part of a part, as it is described, if there is one of that name."""
    for name in names:
        description = description.get(name) if isinstance(description, dict) else None
    return description if isinstance(description, dict) else {}


def _other_moves(manifest: Manifest) -> str:
    return " or ".join(mixing_options(manifest)) or "another kernel"


def _epochs(manifest: Manifest, epochs: int) -> str:
    """Return options for a run of at least so many epochs, rounded to two digits."""
    step = 10 ** max(len(str(epochs)) - 2, 0)
    longer = f"--epochs {math.ceil(epochs / step) * step}"
    return longer if manifest.config.until else f"{longer}, or --until converged"
