"""Printing a diagnosis: the verdict, a table of the quantities, notes."""

from __future__ import annotations

from rich.table import Table

from maskov.cli.escaping import PrintableConsole, printable
from maskov.diagnostics.diagnosis import Diagnosis
from maskov.diagnostics.energies import EnergyFigures

_COLUMNS = ("", "R-hat", "median", "ESS bulk", "ESS tail", "mean", "MCSE", "autocorr. time")
_UNKNOWN = "–"


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print to standard output."""
    # Sentences are not folded, so that grep finds them.
    print(printable(str(diagnosis.verdict)), end="\n\n")
    PrintableConsole().print(_table(diagnosis), markup=False, highlight=False)
    for note in diagnosis.notes:
        print(printable(f"note: {note}"))
    print()


def _table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for name, energy in diagnosis.energies.items():
        table.add_row(name, *_energy(energy))
    tokens = diagnosis.tokens
    if tokens is not None:
        table.add_row("tokens", *[""] * (len(_COLUMNS) - 2), _time(tokens.time, tokens.at_least))
    return table


def _energy(energy: EnergyFigures) -> list[str]:
    numbers = [
        (energy.r_hat, ".3f"),
        (energy.r_hat_median, ".3f"),
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
