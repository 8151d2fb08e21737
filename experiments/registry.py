"""All results, the most important first: the order in which `all` runs them."""

from __future__ import annotations

from experiments import (
    acceptance,
    argpt,
    blocksize,
    counterexample,
    degenerate_lows,
    figure1,
    figure2,
    rawnorm,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
    table7,
)
from experiments.result import Result
from maskov.errors import InputError

RESULTS: dict[str, Result] = {
    module.RESULT.name: module.RESULT
    for module in (
        counterexample, figure1, acceptance, table1, table5, table7, figure2, table2, table6,
        table3, table4, blocksize, rawnorm, argpt, degenerate_lows,
    )
}  # fmt: skip


def results_of(name: str) -> list[Result]:
    """Return one result by name, or all."""
    if name == "all":
        return list(RESULTS.values())
    if name not in RESULTS:
        raise InputError(f"unknown result '{name}'; use all, or one of {', '.join(RESULTS)}.")
    return [RESULTS[name]]
