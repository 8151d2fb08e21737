"""Everything `maskov diagnose` says of a run's convergence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

from maskov.config import Manifest
from maskov.diagnostics.chains import Group, Sampled, chain_groups, kept_epochs, visits_once
from maskov.diagnostics.convergence import NEEDS_ARVIZ, arviz_stats
from maskov.diagnostics.energies import EnergyFigures, energy_figures
from maskov.diagnostics.positions import PositionFigures, position_figures
from maskov.diagnostics.tokens import memories
from maskov.diagnostics.verdict import Verdict, judge
from maskov.types import Traces


@dataclass(frozen=True)
class TokenFigures:
    """How fast tokens are forgotten: over all positions by lag, and position by position."""

    autocorrelation: list[float] | None
    time: float | None
    at_least: bool
    positions: list[PositionFigures]


@dataclass(frozen=True)
class Diagnosis:
    """How far a run's chains have come to agree.

    `epochs` are those done after burn-in, `groups` the sets of chains that share a target and
    `single_groups` those of one chain only. `energies` has E_raw, E_norm and, where the target is
    neither, E_target. `tokens` is absent where they were not traced.
    """

    verdict: Verdict
    epochs: int
    groups: int
    single_groups: int
    energies: dict[str, EnergyFigures]
    tokens: TokenFigures | None
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def diagnose(manifest: Manifest, traces: Traces, sampled: Sampled = dict) -> Diagnosis:
    """Diagnose the epochs after burn-in; `sampled` gives the length of each chain with samples."""
    kept = kept_epochs(manifest, traces)
    groups = chain_groups(manifest, traces, sampled)
    names = {"E_raw": "energy_raw", "E_norm": "energy_norm"}
    if (manifest.energy or "raw") not in ("raw", "norm"):
        names["E_target"] = "energy_target"
    energies = {shown: energy_figures(traces[name][kept], groups) for shown, name in names.items()}
    tokens = _tokens(manifest, traces, groups) if "tokens" in traces else None
    return Diagnosis(
        judge(manifest, energies),
        kept.stop - kept.start,
        len(groups),
        sum(len(group.chains) == 1 for group in groups),
        energies,
        tokens,
        _notes(manifest, traces, groups, energies, tokens),
    )


def _tokens(manifest: Manifest, traces: Traces, groups: list[Group]) -> TokenFigures:
    kept = kept_epochs(manifest, traces)
    known = memories(traces["tokens"][kept], groups)
    positions = position_figures(manifest, traces, groups, known)
    overall = reduce(add, known.values()).overall() if known else None
    correlation, time, at_least = overall or (None, None, False)
    return TokenFigures(correlation, time, at_least, positions)


def _notes(
    manifest: Manifest,
    traces: Traces,
    groups: list[Group],
    energies: dict[str, EnergyFigures],
    tokens: TokenFigures | None,
) -> list[str]:
    """Return what has to be known beside the numbers."""
    notes = []
    if arviz_stats() is None:
        notes.append(NEEDS_ARVIZ)
    alone = sum(len(group.chains) == 1 for group in groups)
    if alone and manifest.chains > 1:
        notes.append(
            f"{alone} of {len(groups)} groups of chains with the same length and template have a "
            "single chain: their R-hat compares its halves, and their tokens look forgotten sooner "
            "than they are"
        )
    if any(group.length is None for group in groups) and manifest.inputs.templates is None:
        notes.append(
            "the lengths of the chains are known once a sample is kept; until then no two chains "
            "are compared"
        )
    kept = kept_epochs(manifest, traces)
    if any(one.draws < kept.stop - kept.start for one in energies.values()):
        notes.append("energies were not traced in every epoch: only those that were count")
    if tokens is None:
        notes.append(
            "tokens were not traced (the run is too large, or older than that): nothing is said of "
            "positions"
        )
    elif not visits_once(manifest, max(kept.start, 1)):
        notes.append(
            "acceptance by position is known only where a sweep visits single positions once an "
            "epoch"
        )
    elif any(one.visits is None for one in tokens.positions) and kept.stop > max(kept.start, 1):
        notes.append(
            "which words of a template are frozen cannot be told where free ones never moved: "
            "there is no acceptance by position"
        )
    return notes
