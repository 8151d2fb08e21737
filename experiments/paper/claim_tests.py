"""Tests of claims: general comparisons of two numbers, and tests for single claims."""

from __future__ import annotations

from math import hypot
from typing import Any

from experiments.lib.bleu import paired_difference
from experiments.lib.quantities import ORDERS, QUANTITIES, SAMPLERS
from experiments.lib.result import Document, find_row
from experiments.lib.settings import SETTINGS
from experiments.paper.verdicts import Documents, Outcome, Test

Row = dict[str, Any]
Point = tuple[str, str, "float | str"]  # quantity, series, x

# The test sets of Table 5 in any setting.
SETS = tuple(dict.fromkeys(name for setting in SETTINGS.values() for name in setting.sets))
# The largest BLEU gap that counts as close; the paper's MH is 0.1 to 0.7 below.
_CLOSE = 1.5


def is_positive(gap: float, error: float) -> bool | None:
    """Return whether a difference is above zero, or None within two standard errors."""
    return None if abs(gap) <= 2 * error else gap > 0


def difference(document: Document, low: Row, high: Row) -> tuple[float, float]:
    """Return the second number minus the first, and its standard error.

    BLEU of the last texts is compared sentence by sentence if both cells stored their counts.
    """
    counts = [document["cells"][row["cell"]].get("sentence_counts") for row in (low, high)]
    if (
        low["quantity"] == "bleu_last"
        and counts[0]
        and counts[1]
        and len(counts[0]) == len(counts[1])
    ):
        return paired_difference(counts[0], counts[1])
    error = hypot(low["standard_error"] or 0.0, high["standard_error"] or 0.0)
    return high["ours"] - low["ours"], error


def less(result: str, *pairs: tuple[Point, Point]) -> Test:
    """Test that the first number of each pair is below the second."""

    def test(documents: Documents) -> list[Outcome] | None:
        outcomes = []
        for low, high in pairs:
            rows = find_row(documents[result], *low), find_row(documents[result], *high)
            if rows[0] is None or rows[1] is None:
                continue
            holds = is_positive(*difference(documents[result], *rows))
            printed = ""
            if rows[0]["paper"] is not None and rows[1]["paper"] is not None:
                printed = f"{rows[0]['paper']:g} < {rows[1]['paper']:g}"
            sign = "<" if holds else "≥" if holds is False else "≈"
            outcomes.append(Outcome(holds, _describe(low, high, rows, sign), printed))
        return outcomes or None

    return test


def between(result: str, *bounds: tuple[Point, float, float]) -> Test:
    """Test that numbers lie within bounds; up to two standard errors outside is undecided."""

    def test(documents: Documents) -> list[Outcome] | None:
        outcomes = []
        for point, low, high in bounds:
            row = find_row(documents[result], *point)
            if row is None:
                continue
            value, error = row["ours"], 2 * (row["standard_error"] or 0.0)
            inside = low <= value <= high
            near = low - error <= value <= high + error
            name, digits = QUANTITIES[point[0]]
            at = f", {point[2]}" if isinstance(point[2], float) else ""
            text = (
                f"{_series(point)} {name}{at}: {value:.{digits}f} (required: {low:g} to {high:g})"
            )
            printed = "" if row["paper"] is None else f"{row['paper']:g}"
            outcomes.append(Outcome(True if inside else None if near else False, text, printed))
        return outcomes or None

    return test


def _describe(low: Point, high: Point, rows: tuple[Row, Row], sign: str) -> str:
    name, digits = QUANTITIES[low[0]]
    same_series = _series(low) == _series(high)
    sides = [
        f"{_series(point) + ' ' if not same_series else ''}{row['ours']:.{digits}f}"
        + (f" ({point[2]})" if low[2] != high[2] else "")
        for point, row in zip((low, high), rows, strict=True)
    ]
    series = f"{_series(low)} " if same_series else ""
    x = f", {low[2]}" if low[2] == high[2] and low[2] not in ("value", "text") else ""
    return f"{name}{x}: {series}{sides[0]} {sign} {sides[1]}"


def _series(point: Point) -> str:
    return SAMPLERS.get(point[1], point[1])


def counterexample(documents: Documents) -> list[Outcome] | None:
    """Test the exact distributions of the counter-example."""
    cell = documents["counterexample"]["cells"].get("laws")
    if cell is None:
        return None
    values = {name: estimate["value"] for name, estimate in cell["values"].items()}
    distances = {order: values[f"variation_norm, {order}"] for order in ORDERS}
    listed = ", ".join(f"{distance:.3f} {order}" for order, distance in distances.items())
    return [
        Outcome(
            abs(values["ratio_first"] - 99) < 1e-9 and abs(values["ratio_second"] - 1) < 1e-9,
            f"p(aa)/p(ab) is {values['ratio_first']:.2f} by one conditional and "
            f"{values['ratio_second']:.2f} by the other; the odds ratios are "
            f"{values['odds_first']:.0f} and {values['odds_second']:.0f}",
            "99 ≠ 1",
        ),
        Outcome(
            max(distances.values()) - min(distances.values()) > 0.01,
            "the stationary distribution of degenerate Gibbs depends on the order of positions; "
            f"its total variation distance to exp(−E): {listed}",
        ),
        Outcome(
            values["mh_invariance_error"] < 1e-10,
            f"MH leaves both targets invariant, to {values['mh_invariance_error']:.0e}",
        ),
    ]


def degrades(documents: Documents) -> list[Outcome] | None:
    """Compare degenerate Gibbs in the first traced epoch with the mean of the last quarter."""
    cell = documents["figure1"]["cells"].get("deg")
    if cell is None:
        return None
    curve = cell["epochs"]["energy_norm"]
    values = [value for value in curve["value"] if value is not None]
    error = max(error or 0.0 for error in curve["standard_error"] if error is not None)
    late = values[-max(1, len(values) // 4) :]
    last = sum(late) / len(late)
    holds = is_positive(last - values[0], error)
    return [Outcome(holds, f"degenerate Gibbs E_norm: {values[0]:.2f} after one epoch, {last:.2f} "
                    "in the last quarter")]  # fmt: skip


def equality(documents: Documents) -> list[Outcome] | None:
    """Test that block Gibbs and mask-predict give the same tokens."""
    cell = documents["table4"]["cells"].get("mask-predict")
    if cell is None:
        return None
    equal = cell["values"]["equal"]
    count = round(equal["value"] * equal["n"])
    return [Outcome(count == equal["n"], f"the same tokens for {count} of {equal['n']} sentences")]


def beats(better: tuple[str, ...], worse: tuple[str, ...]) -> Test:
    """Test that BLEU of each `better` row of Table 5 is above each `worse` one on every set."""
    return less(
        "table5",
        *(
            (("bleu_last", low, data), ("bleu_last", high, data))
            for high in better
            for low in worse
            for data in SETS
        ),
    )


def close(documents: Documents) -> list[Outcome] | None:
    """Test that MH is at most `_CLOSE` BLEU below the autoregressive model on every set."""
    outcomes = []
    for name in ("MH norm", "MH raw"):
        for data in SETS:
            rows = [
                find_row(documents["table5"], "bleu_last", row, data)
                for row in (name, "autoregressive model")
            ]
            if rows[0] is None or rows[1] is None:
                continue
            gap, error = difference(documents["table5"], rows[0], rows[1])
            printed = [row["paper"] for row in rows]
            outcomes.append(
                Outcome(
                    is_positive(_CLOSE - gap, error),
                    f"{data}: {name} {gap:.2f} ± {error:.2f} below (required: at most {_CLOSE:g})",
                    f"{printed[1] - printed[0]:.2f}" if None not in printed else "",
                )
            )
    return outcomes or None


def early_late(documents: Documents) -> list[Outcome] | None:
    """Compare the acceptance of shrinking blocks in the first epoch with that in the last."""
    outcomes = []
    for name in ("raw", "norm"):
        cell = documents["blocksize"]["cells"].get(name)
        if cell is None:
            return None
        curve = cell["epochs"]["acceptance"]
        first, last = curve["value"][0], curve["value"][-1]
        error = max(error or 0.0 for error in curve["standard_error"])
        holds = is_positive(first - last, error)
        outcomes.append(
            Outcome(
                holds,
                f"MH, E_{name}: acceptance {first:.3f} in the first epoch, {last:.3f} in the last",
            )
        )
    return outcomes


def block_gain(documents: Documents) -> list[Outcome] | None:
    """Compare the novel rates of blocks with those of single positions."""
    if "acceptance" not in documents:
        return None
    outcomes = []
    for task in ("translation", "text"):
        for name in ("raw", "norm"):
            block = find_row(documents["table4"], "novel", name, task)
            single = find_row(documents["acceptance"], "novel", name, task)
            if block is None or single is None:
                continue
            gap = block["ours"] - single["ours"]
            error = hypot(block["standard_error"] or 0.0, single["standard_error"] or 0.0)
            outcomes.append(
                Outcome(
                    is_positive(gap, error),
                    f"{task}, MH, E_{name}: {single['ours']:.3f} with single positions, "
                    f"{block['ours']:.3f} with blocks",
                    f"{single['paper']:g} to {block['paper']:g}",
                )
            )
    return outcomes or None


def periods(documents: Documents) -> list[Outcome] | None:
    """Compare a row of periods, and other repeated tokens, with held-out text."""
    cell = documents["degenerate-lows"]["cells"].get("lows")
    if cell is None:
        return None
    values = {name: estimate["value"] for name, estimate in cell["values"].items()}
    outcomes = []
    for key, name in (("raw", "E_raw"), ("norm", "E_norm"), ("perplexity", "judge perplexity")):
        repeated, held_out = values[f"period_{key}"], values[f"held_out_{key}"]
        outcomes.append(
            Outcome(
                repeated < held_out, f"{name}: periods {repeated:.2f}, held-out text {held_out:.2f}"
            )
        )
    for key in ("raw", "norm"):
        share = values[f"repeated_below_{key}"]
        outcomes.append(
            Outcome(
                share > 0,
                f"{share:.1%} of repeated tokens have lower E_{key} than held-out text",
            )
        )
    return outcomes
