"""All results, the most important first: the order in which `all` runs them."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.lib.result import Result
from experiments.paper import (
    acceptance,
    argpt,
    blocksize,
    cool_text,
    counterexample,
    degenerate_lows,
    explanations,
    figure1,
    figure2,
    fixed_blocks,
    rawnorm,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
    table7,
)
from maskov.errors import InputError

RESULTS: dict[str, Result] = {
    module.RESULT.name: module.RESULT
    for module in (
        counterexample, figure1, acceptance, table1, table5, table7, figure2, table2, table6,
        table3, table4, blocksize, rawnorm, argpt, degenerate_lows, explanations, fixed_blocks,
        cool_text,
    )
}  # fmt: skip


def results_of(names: Sequence[str]) -> list[Result]:
    """Return results by name, in the order given, or all."""
    if list(names) == ["all"]:
        return list(RESULTS.values())
    for name in names:
        if name not in RESULTS:
            raise InputError(f"unknown result '{name}'; use all, or any of {', '.join(RESULTS)}.")
    return [RESULTS[name] for name in dict.fromkeys(names)]
