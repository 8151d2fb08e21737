"""Each expert of a run's energy: its weight, what it costs, and how its energy converges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskov.config import Manifest
from maskov.diagnostics.chains import Group
from maskov.diagnostics.energies import EnergyFigures, energy_figures
from maskov.types import Traces


@dataclass(frozen=True)
class ExpertFigures:
    """An expert: a part of the energy other than masked passes.

    `weight` is its factor in the energy, None if unknown. `calls_per_step` is how often it was
    asked per step, over all completed epochs: cheap experts see every new proposal, others those
    that pass the tests before them. `energy` are the figures of its energy, without its weight.
    """

    name: str
    weight: float | None
    calls_per_step: float | None
    energy: EnergyFigures


def expert_figures(
    manifest: Manifest, traces: Traces, kept: slice, groups: Sequence[Group]
) -> list[ExpertFigures]:
    """Return the figures of each expert, in the order of the energy; none without experts."""
    if not manifest.experts:
        return []
    done, weights = slice(0, kept.stop), manifest.expert_weights
    steps = int(traces["steps"][done].sum())
    found = []
    for column, name in enumerate(manifest.experts):
        calls = int(traces["expert_calls"][done, :, column].sum())
        figures = energy_figures(traces["expert_energy"][kept, :, column], groups)
        weight = weights[column] if column < len(weights) else None
        found.append(ExpertFigures(name, weight, calls / steps if steps else None, figures))
    return found
