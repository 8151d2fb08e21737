"""The last words of a run: whether its chains have converged, and what to try next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskov.config import Manifest
    from maskov.diagnostics.diagnosis import Diagnosis

# Chains that are enough to compare.
_CHAINS = 8
# States of a verdict that a longer run changes.
_LONGER = ("not converged", "borderline", "not judged")


def last_words(manifest: Manifest, diagnosis: Diagnosis) -> list[str]:
    """Return the verdict of `maskov diagnose` and, unless it is good, what to try next."""
    advice = _advice(manifest, diagnosis)
    return [str(diagnosis.verdict), *([f"try next: {advice}"] if advice else [])]


def _advice(manifest: Manifest, diagnosis: Diagnosis) -> str:
    """Return options by name, or nothing if the verdict is good."""
    from maskov.diagnostics.outlook import mixing_options
    from maskov.diagnostics.thresholds import MIN_DRAWS

    schedule, verdict = manifest.schedule, diagnosis.verdict
    kept = max(schedule.epochs - schedule.burn_in, 1)
    if verdict.state == "no target":
        return "--kernel mh, which samples from the energy"
    if verdict.state == "annealed":
        return "no --anneal, or --burn-in until the temperature is at its floor"
    if verdict.state == "forced":
        return f"--burn-in {schedule.force_accept} or more"
    if verdict.state in ("one chain", "single chains"):
        return f"--chains {max(_CHAINS, 2 * manifest.chains)}"
    if verdict.state == "too short to tell":
        return _epochs(manifest, max(2 * schedule.epochs, schedule.burn_in + MIN_DRAWS))
    if verdict.state == "constant" or (diagnosis.outlook and diagnosis.outlook.disagree):
        options = mixing_options(manifest)
        longer = _epochs(manifest, schedule.burn_in + 2 * kept)
        return " or ".join([*options, longer])
    if verdict.state in _LONGER:
        factor = verdict.times_longer or 2.0
        return _epochs(manifest, schedule.burn_in + math.ceil(factor * kept))
    return ""


def _epochs(manifest: Manifest, epochs: int) -> str:
    """Return options for a run of at least so many epochs, rounded to two digits."""
    step = 10 ** max(len(str(epochs)) - 2, 0)
    longer = f"--epochs {math.ceil(epochs / step) * step}"
    return longer if manifest.config.until else f"{longer}, or --until converged"
