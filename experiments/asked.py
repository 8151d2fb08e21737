"""How claims are tested that ask for more than which of two numbers is larger."""

from __future__ import annotations

from math import hypot

from experiments.claims import Documents, Outcome, Test, difference, less, settled
from experiments.quantities import ORDERS
from experiments.result import found
from experiments.settings import SETTINGS

# The test sets of Table 5, in any setting.
SETS = tuple(dict.fromkeys(name for setting in SETTINGS.values() for name in setting.sets))
# How far below the autoregressive model still counts as close; the paper's MH is 0.1 to 0.7 below.
_CLOSE = 1.5


def counterexample(documents: Documents) -> list[Outcome] | None:
    """Ask what the enumerated laws of the counter-example show."""
    cell = documents["counterexample"]["cells"].get("laws")
    if cell is None:
        return None
    values = {name: one["value"] for name, one in cell["values"].items()}
    moved = {order: values[f"variation_norm, {order}"] for order in ORDERS}
    told = ", ".join(f"{distance:.3f} swept {order}" for order, distance in moved.items())
    return [
        Outcome(
            abs(values["ratio_first"] - 99) < 1e-9 and abs(values["ratio_second"] - 1) < 1e-9,
            f"p(aa)/p(ab) is {values['ratio_first']:.2f} by one conditional and "
            f"{values['ratio_second']:.2f} by the other; the odds ratios are "
            f"{values['odds_first']:.0f} and {values['odds_second']:.0f}",
            "99 ≠ 1",
        ),
        Outcome(
            max(moved.values()) - min(moved.values()) > 0.01,
            "what degenerate Gibbs samples depends on the order; its distance to exp(−E), in total "
            f"variation: {told}",
        ),
        Outcome(
            values["mh_invariance_error"] < 1e-10,
            f"MH leaves both targets invariant, to {values['mh_invariance_error']:.0e}",
        ),
    ]


def degrades(documents: Documents) -> list[Outcome] | None:
    """Compare degenerate Gibbs in the first traced epoch with the average of the last quarter."""
    cell = documents["figure1"]["cells"].get("deg")
    if cell is None:
        return None
    curve = cell["epochs"]["energy_norm"]
    values = [value for value in curve["value"] if value is not None]
    error = max(error or 0.0 for error in curve["standard_error"] if error is not None)
    late = values[-max(1, len(values) // 4) :]
    last = sum(late) / len(late)
    holds = settled(last - values[0], error)
    return [Outcome(holds, f"degenerate Gibbs E_norm: {values[0]:.2f} after one epoch, {last:.2f} "
                    "in the last quarter")]  # fmt: skip


def equality(documents: Documents) -> list[Outcome] | None:
    """Ask whether block Gibbs and mask-predict wrote the same tokens."""
    cell = documents["table4"]["cells"].get("mask-predict")
    if cell is None:
        return None
    equal = cell["values"]["equal"]
    count = round(equal["value"] * equal["n"])
    return [Outcome(count == equal["n"], f"the same tokens for {count} of {equal['n']} sentences")]


def beats(better: tuple[str, ...], worse: tuple[str, ...]) -> Test:
    """Compare rows of Table 5 on every set: BLEU of each `better` above each of `worse`."""
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
    """Ask whether MH is at most `_CLOSE` below the autoregressive model, on every set."""
    outcomes = []
    for name in ("MH norm", "MH raw"):
        for data in SETS:
            rows = [
                found(documents["table5"], "bleu_last", row, data)
                for row in (name, "autoregressive model")
            ]
            if rows[0] is None or rows[1] is None:
                continue
            gap, error = difference(documents["table5"], rows[0], rows[1])
            printed = [row["paper"] for row in rows]
            outcomes.append(
                Outcome(
                    settled(_CLOSE - gap, error),
                    f"{data}: {name} {gap:.2f} ± {error:.2f} below (asked: at most {_CLOSE:g})",
                    f"{printed[1] - printed[0]:.2f}" if None not in printed else "",
                )
            )
    return outcomes or None


def early_late(documents: Documents) -> list[Outcome] | None:
    """Compare acceptance of shrinking blocks in the first epochs with that in the last."""
    outcomes = []
    for name in ("raw", "norm"):
        cell = documents["blocksize"]["cells"].get(name)
        if cell is None:
            return None
        curve = cell["epochs"]["acceptance"]
        first, last = curve["value"][0], curve["value"][-1]
        error = max(one or 0.0 for one in curve["standard_error"])
        holds = settled(first - last, error)
        outcomes.append(
            Outcome(holds, f"MH, E_{name}: acceptance {first:.3f} at first, {last:.3f} at last")
        )
    return outcomes


def block_gain(documents: Documents) -> list[Outcome] | None:
    """Compare novel rates with blocks to those of single positions, in `acceptance`."""
    if "acceptance" not in documents:
        return None
    outcomes = []
    for task in ("translation", "text"):
        for name in ("raw", "norm"):
            block = found(documents["table4"], "novel", name, task)
            single = found(documents["acceptance"], "novel", name, task)
            if block is None or single is None:
                continue
            gap = block["ours"] - single["ours"]
            error = hypot(block["standard_error"] or 0.0, single["standard_error"] or 0.0)
            outcomes.append(
                Outcome(
                    settled(gap, error),
                    f"{task}, MH, E_{name}: {single['ours']:.3f} single, {block['ours']:.3f} in "
                    f"blocks",
                    f"{single['paper']:g} to {block['paper']:g}",
                )
            )
    return outcomes or None


def periods(documents: Documents) -> list[Outcome] | None:
    """Compare a row of periods, and other repeated tokens, with held-out text."""
    cell = documents["degenerate-lows"]["cells"].get("lows")
    if cell is None:
        return None
    values = {name: one["value"] for name, one in cell["values"].items()}
    outcomes = []
    for what, name in (("raw", "E_raw"), ("norm", "E_norm"), ("perplexity", "judge perplexity")):
        ours, usual = values[f"period_{what}"], values[f"held_out_{what}"]
        outcomes.append(
            Outcome(ours < usual, f"{name}: periods {ours:.2f}, held-out text {usual:.2f}")
        )
    for what in ("raw", "norm"):
        share = values[f"repeated_below_{what}"]
        outcomes.append(
            Outcome(
                share > 0,
                f"{share:.1%} of tokens, repeated, lie below held-out text by E_{what}",
            )
        )
    return outcomes
