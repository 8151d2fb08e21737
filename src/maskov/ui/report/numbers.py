"""Format numbers with as many digits as their uncertainty allows."""

from __future__ import annotations

import math

from maskov.ui.report.findings import Mixing

UNKNOWN = "–"
# The columns of the tables of convergence and of experts.
MIXING = ("", "nested R-hat", "limit", "ESS bulk", "ESS tail", "mean", "MCSE", "autocorr. time")
EXPERTS = ("expert", "weight", "mean energy", "calls per step")


def shown(value: float | None, form: str = ".2f") -> str:
    """Return a number with a typographic minus sign, or a dash for None."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return format(value, form).replace("-", "−")


def with_error(value: float, error: float | None) -> str:
    """Return value ± error, to two digits of the error; without an error, four digits."""
    if error is None or not math.isfinite(error) or error <= 0:
        return shown(value, ".4g")
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{shown(value, f'.{places}f')} ± {error:.{places}f}"


def mixing_row(mixing: Mixing) -> list[str]:
    """Return the cells of a row of `MIXING`."""
    time = UNKNOWN if mixing.time is None else f"{'≥ ' * mixing.at_least}{mixing.time:.1f} epochs"
    return [
        "infinite" if mixing.r_hat == math.inf else shown(mixing.r_hat, ".3f"),
        shown(mixing.r_hat_limit, ".3f"),
        shown(mixing.ess_bulk, ",.0f"),
        shown(mixing.ess_tail, ",.0f"),
        shown(mixing.mean),
        shown(mixing.mcse, ".2g"),
        time,
    ]
