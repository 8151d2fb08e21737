"""Printing a diagnosis: the verdict, a table of the quantities, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from maskov.cli.output import print_table
from maskov.ui.escaping import printable

if TYPE_CHECKING:
    from maskov.diagnostics.diagnosis import Diagnosis
    from maskov.diagnostics.energies import EnergyFigures
    from maskov.diagnostics.exchange import ExchangeFigures
    from maskov.diagnostics.experts import ExpertFigures
    from maskov.diagnostics.statistics import TokenStatistic

_COLUMNS = ("", "nested R-hat", "limit", "ESS bulk", "ESS tail", "mean", "MCSE", "autocorr. time")
_UNKNOWN = "–"


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print to standard output."""
    # Sentences are not folded, so that grep finds them.
    for sentence in diagnosis.verdict.lines():
        print(printable(sentence))
    print()
    print_table(_table(diagnosis))
    if diagnosis.experts:
        print()
        print_table(_experts(diagnosis.experts))
    if diagnosis.exchange is not None:
        print()
        print_table(_swaps(diagnosis.exchange))
        trips = diagnosis.exchange.round_trips_per_1000_epochs
        shown = _UNKNOWN if trips is None else f"{trips:.1f}"
        print(f"round trips of a chain's replicas per 1,000 epochs: {shown}")
    for note in diagnosis.notes:
        print(printable(f"note: {note}"))
    print()


def _table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for name, energy in diagnosis.energies.items():
        table.add_row(name, *_energy(energy))
    for expert in diagnosis.experts:
        table.add_row(printable(expert.name), *_energy(expert.energy))
    tokens = diagnosis.tokens
    if tokens is not None:
        table.add_row("tokens", *[""] * (len(_COLUMNS) - 2), _time(tokens.time, tokens.at_least))
        for label, statistic in tokens.extremes().items():
            table.add_row(label, *_statistic(statistic))
    return table


def _statistic(statistic: TokenStatistic) -> list[str]:
    r_hats = (statistic.r_hat, statistic.r_hat_limit)
    shown = [_UNKNOWN if value is None else f"{value:.3f}" for value in r_hats]
    return [*shown, f"{statistic.ess:.0f}", "", f"{statistic.mean:z.2f}", "", ""]


def _experts(experts: Sequence[ExpertFigures]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("expert", "weight", "mean energy", "calls per step"):
        table.add_column(column, justify="left" if column == "expert" else "right")
    for one in experts:
        numbers = ((one.weight, "g"), (one.energy.mean, ".2f"), (one.calls_per_step, ".2f"))
        shown = [_UNKNOWN if value is None else format(value, form) for value, form in numbers]
        table.add_row(printable(one.name), *shown)
    return table


def _swaps(exchange: ExchangeFigures) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("replicas at β", "swap rate"):
        table.add_column(column, justify="right")
    pairs = zip(exchange.ladder, exchange.ladder[1:], exchange.swap_rates, strict=False)
    for one, other, rate in pairs:
        table.add_row(f"{one:g} ↔ {other:g}", _UNKNOWN if rate is None else f"{rate:.3f}")
    return table


def _energy(energy: EnergyFigures) -> list[str]:
    numbers = [
        (energy.r_hat, ".3f"),
        (energy.r_hat_limit, ".3f"),
        (energy.ess_bulk, ".0f"),
        (energy.ess_tail, ".0f"),
        (energy.mean, ".2f"),
        (energy.mcse, ".2g"),
    ]
    shown = [_UNKNOWN if value is None else format(value, form) for value, form in numbers]
    return [*shown, _time(energy.time, energy.at_least)]


def _time(time: float | None, at_least: bool) -> str:
    if time is None:
        return _UNKNOWN
    return f"{'≥ ' if at_least else ''}{time:.1f} epochs"
