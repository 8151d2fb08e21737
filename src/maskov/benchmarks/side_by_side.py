"""The benchmark: Algorithm 1, batched Algorithm 1, maskov and the scorers, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from maskov.benchmarks.jobs import Job, in_subprocess
from maskov.benchmarks.machine import all_versions
from maskov.benchmarks.options import Options
from maskov.benchmarks.report import Row, make_row, over, ratios
from maskov.benchmarks.scoring import SCORERS
from maskov.benchmarks.variants import VARIANTS, Variant, reference

# The plain rows: letter, name, what it is, and whether masked copies go through together.
PLAIN = (
    ("a", "algorithm 1", "the paper's Algorithm 1 as written: one masked copy at a time", False),
    ("b", "batched copies", "the same with all masked copies of a sequence in one batch", True),
)
# How far two scorers may be apart, relative to the energy: they batch differently.
_TOLERANCE = {"float32": 1e-5, "tf32": 2e-3, "bfloat16": 2e-2}

Work = Callable[[Job], dict[str, Any]]


def run(
    options: Options, say: Callable[[str], None] | None = None, work: Work = in_subprocess
) -> dict[str, Any]:
    """Measure every row that was asked for; return all of it as plain data."""
    given = options.to_dict()

    def measure(what: str, **job: Any) -> dict[str, Any]:
        if say is not None:
            say(f"measuring {what}")
        return work({"options": given, **job})

    chosen = _variants(options)
    measured = {v.name: measure(v.name, task="sampling", variant=v.name) for v in chosen}
    ceiling = measure("the ceiling", task="ceiling")
    limit = ceiling["teraflops"]
    rows = [
        make_row(v.name, v.what, measured[v.name], measured[v.name], v.name, limit) for v in chosen
    ]
    plain: dict[str, Row] = {}
    for letter, name, what, together in PLAIN:
        if letter in options.rows:
            law = measured[reference().name]
            found = measure(name, task="plain", starts=law["ids"], together=together)
            plain[letter] = make_row(name, what, found, law, reference().name, limit)
    rows = [replace(row, ratios=ratios(row, plain)) for row in (*plain.values(), *rows)]
    scored = None
    if "score" in options.rows:
        scored = _compare(
            [measure(f"scoring by {n}", task="scoring", scorer=n) for n in SCORERS],
            options.precision,
        )
    return {
        "kind": "side by side",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": given | {"model": ceiling["model"]["name"]},
        "model": ceiling["model"],
        "machine": ceiling["machine"],
        "versions": all_versions(),
        "ceiling": {key: ceiling[key] for key in ("teraflops", "tokens")},
        "reference": reference().name,
        "rows": [row.to_dict() for row in rows],
        "score": scored,
    }


def _variants(options: Options) -> list[Variant]:
    """Return the variants to run; the plain rows start where the reference ends."""
    wanted = set(options.rows)
    return [
        variant
        for variant in VARIANTS
        if wanted & {"c", variant.name} or (variant == reference() and wanted & {"a", "b"})
    ]


def _compare(found: list[dict[str, Any]], precision: str) -> dict[str, Any]:
    """Put the scorers side by side; they must agree in value before speed means anything."""
    ours, theirs = found
    rows = [
        {key: value for key, value in row.items() if key not in ("energies", "model", "machine")}
        for row in found
    ]
    if "missing" in theirs:
        return {"rows": rows, "compared": 0, "largest_difference": None, "agree": None,
                "ratio": None}  # fmt: skip
    pairs = list(zip(ours["energies"], theirs["energies"], strict=False))
    apart = [abs(one - other) for one, other in pairs]
    tolerance = _TOLERANCE[precision]
    return {
        "rows": rows,
        "compared": len(pairs),
        "largest_difference": max(apart),
        "agree": all(gap <= tolerance * abs(e) for gap, (e, _) in zip(apart, pairs, strict=True)),
        "ratio": over(ours["sentences_per_second"], theirs["sentences_per_second"]),
    }
