"""Numbers as a reader wants them: as many digits as their uncertainty allows."""

from __future__ import annotations

import math

from maskov.ui.report.findings import Mixing

UNKNOWN = "–"


def shown(value: float | None, form: str = ".2f") -> str:
    """Return a number with a real minus sign, or a dash where there is none."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return format(value, form).replace("-", "−")


def with_error(value: float, error: float | None) -> str:
    """Return value ± error, both to two digits of the error; without one, four digits."""
    if error is None or not math.isfinite(error) or error <= 0:
        return shown(value, ".4g")
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{shown(value, f'.{places}f')} ± {error:.{places}f}"


def mixing_row(one: Mixing) -> list[str]:
    """Return R-hat, effective sizes, mean, its Monte Carlo error, and the time to forget."""
    time = UNKNOWN if one.time is None else f"{'≥ ' * one.at_least}{one.time:.1f} epochs"
    return [
        shown(one.r_hat, ".3f"),
        shown(one.ess_bulk, ",.0f"),
        shown(one.ess_tail, ",.0f"),
        shown(one.mean),
        shown(one.mcse, ".2g"),
        time,
    ]
