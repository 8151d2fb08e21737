"""The convergence diagnostics that `maskov diagnose` reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

from maskov.config import Manifest
from maskov.diagnostics.autocorrelation import memories
from maskov.diagnostics.chains import (
    Group,
    Sampled,
    chain_groups,
    kept_epochs,
    traced_lengths,
    visits_once,
)
from maskov.diagnostics.energies import EnergyFigures, energy_figures
from maskov.diagnostics.exchange import ExchangeFigures, exchange_figures
from maskov.diagnostics.experts import ExpertFigures, expert_figures
from maskov.diagnostics.positions import PositionFigures, position_figures
from maskov.diagnostics.statistics import Names, TokenStatistic, token_statistics
from maskov.diagnostics.verdict import Verdict, judge
from maskov.types import Traces


@dataclass(frozen=True)
class TokenFigures:
    """Autocorrelation of the tokens, over all positions and for each.

    `statistics` are shares of common tokens and tokens at positions, the slowest first.
    """

    statistics: list[TokenStatistic]
    autocorrelation: list[float] | None
    time: float | None
    at_least: bool
    positions: list[PositionFigures]

    def extremes(self) -> dict[str, TokenStatistic]:
        """Return the slowest and the fastest statistic by a label; one that is alone is slowest."""
        ends = dict(
            zip(
                ("slowest", "fastest"), self.statistics[:1] + self.statistics[1:][-1:], strict=False
            )
        )
        return {f"{which}: {one.name}": one for which, one in ends.items()}


@dataclass(frozen=True)
class Diagnosis:
    """The convergence of a run's chains.

    `epochs` counts those completed after burn-in, `groups` the sets of chains that share a target,
    `single_groups` those with only one chain. `energies` has E_raw, E_norm and, if the target is
    neither, E_target; `experts` are the target's parts other than masked passes. `tokens` is None
    if they were not traced, `exchange` without replicas.
    """

    verdict: Verdict
    epochs: int
    groups: int
    single_groups: int
    energies: dict[str, EnergyFigures]
    experts: list[ExpertFigures]
    tokens: TokenFigures | None
    exchange: ExchangeFigures | None
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def diagnose(
    manifest: Manifest, traces: Traces, sampled: Sampled = dict, names: Names = dict
) -> Diagnosis:
    """Diagnose the epochs after burn-in.

    `sampled` returns the lengths of chains with samples, `names` the texts of tokens by number.
    """
    kept = kept_epochs(manifest, traces)
    groups = chain_groups(manifest, traces, sampled)
    quantities = {"E_raw": "energy_raw", "E_norm": "energy_norm"}
    if (manifest.energy or "raw") not in ("raw", "norm"):
        quantities["E_target"] = "energy_target"
    energies = {
        shown: energy_figures(traces[name][kept], groups) for shown, name in quantities.items()
    }
    tokens = None
    if "tokens" in traces:
        lengths = traced_lengths(manifest, traces, kept, sampled)
        statistics = token_statistics(traces["tokens"][kept], lengths, groups, names)
        tokens = _tokens(manifest, traces, groups, statistics)
    statistics = [] if tokens is None else tokens.statistics
    exchange = exchange_figures(manifest, traces, kept) if manifest.replicas > 1 else None
    # Energies that cost passes of their own are traced less often than the target's.
    most = max(energy.draws for energy in energies.values())
    judged = {name: energy for name, energy in energies.items() if energy.draws == most}
    return Diagnosis(
        judge(manifest, judged, statistics),
        kept.stop - kept.start,
        len(groups),
        sum(len(group.chains) == 1 for group in groups),
        energies,
        expert_figures(manifest, traces, kept, groups),
        tokens,
        exchange,
        _notes(manifest, traces, groups, energies, tokens, exchange),
    )


def _tokens(
    manifest: Manifest, traces: Traces, groups: list[Group], statistics: list[TokenStatistic]
) -> TokenFigures:
    kept = kept_epochs(manifest, traces)
    by_template = memories(traces["tokens"][kept], groups)
    positions = position_figures(manifest, traces, groups, by_template)
    overall = reduce(add, by_template.values()).overall() if by_template else None
    correlation, time, at_least = overall or (None, None, False)
    return TokenFigures(statistics, correlation, time, at_least, positions)


def _notes(
    manifest: Manifest,
    traces: Traces,
    groups: list[Group],
    energies: dict[str, EnergyFigures],
    tokens: TokenFigures | None,
    exchange: ExchangeFigures | None,
) -> list[str]:
    """Return the limitations of the numbers."""
    notes = []
    single = sum(len(group.chains) == 1 for group in groups)
    if single and manifest.chains > 1:
        notes.append(
            f"{single} of {len(groups)} groups of chains with the same length and template have a "
            "single chain, which is compared with no other: it has no R-hat, and the "
            "autocorrelation time of its tokens is too short"
        )
    unknown = any(group.length is None for group in groups) and not manifest.inputs.sampled
    if unknown and not manifest.inputs.holds_tokens:
        notes.append(
            "the lengths of the chains are unknown until a sample is kept; until then no two "
            "chains are compared"
        )
    if exchange is not None and exchange.slow_pairs():
        notes.append(
            f"replicas hardly ever swap between {', '.join(exchange.slow_pairs())}: give a ladder "
            "with smaller steps there, or more replicas"
        )
    kept = kept_epochs(manifest, traces)
    if any(energy.draws < kept.stop - kept.start for energy in energies.values()):
        notes.append("energies were not traced in every epoch: only traced epochs count")
    if tokens is None:
        notes.append(
            "tokens were not traced (large runs do not trace them): the verdict rests on energies "
            "alone, and there are no numbers by position"
        )
    elif manifest.replicas > 1:
        notes.append("there is no acceptance by position: a swap of replicas changes all at once")
    elif not visits_once(manifest, max(kept.start, 1)):
        notes.append(
            "acceptance by position is known only for sweeps of single positions, once per epoch"
        )
    elif kept.stop > max(kept.start, 1) and any(part.visits is None for part in tokens.positions):
        notes.append(
            "there is no acceptance by position: some free words of a template never moved and "
            "cannot be distinguished from frozen ones"
        )
    return notes
