"""Measure Algorithm 1, batched Algorithm 1, maskov and the scorers side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from maskov.benchmarks.jobs import Job, run_in_subprocess
from maskov.benchmarks.machine import all_versions
from maskov.benchmarks.options import Options
from maskov.benchmarks.rows import Row, divide, make_row, ratios
from maskov.benchmarks.scoring import SCORERS
from maskov.benchmarks.start_up import seconds_to_answer
from maskov.benchmarks.variants import VARIANTS, Variant, reference_variant

# The plain rows: letter, name, description, and whether masked copies are batched.
PLAIN = (
    ("a", "algorithm 1", "the paper's Algorithm 1 as written: one masked copy at a time", False),
    ("b", "batched copies", "the same with all masked copies of a sequence in one batch", True),
)
# Allowed relative difference of two scorers, which batch differently.
_TOLERANCE = {"float32": 1e-5, "tf32": 2e-3, "bfloat16": 2e-2}

RunJob = Callable[[Job], dict[str, Any]]


def run(
    options: Options, say: Callable[[str], None] | None = None, run_job: RunJob = run_in_subprocess
) -> dict[str, Any]:
    """Measure the selected rows; return plain data."""
    job_options = options.to_dict()

    def measure(what: str, **job: Any) -> dict[str, Any]:
        if say is not None:
            say(f"measuring {what}")
        return run_job({"options": job_options, **job})

    variants = _variants(options)
    measured = {v.name: measure(v.name, task="sampling", variant=v.name) for v in variants}
    ceiling = measure("the ceiling", task="ceiling")
    limit = ceiling["teraflops"]
    rows = [
        make_row(v.name, v.what, measured[v.name], measured[v.name], v.name, limit)
        for v in variants
    ]
    plain: dict[str, Row] = {}
    for letter, name, what, together in PLAIN:
        if letter in options.rows:
            rates = measured[reference_variant().name]
            counted = measure(name, task="plain", starts=rates["ids"], together=together)
            plain[letter] = make_row(name, what, counted, rates, reference_variant().name, limit)
    rows = [replace(row, ratios=ratios(row, plain)) for row in (*plain.values(), *rows)]
    scored = None
    if "score" in options.rows:
        scored = _compare(
            [measure(f"scoring by {n}", task="scoring", scorer=n) for n in SCORERS],
            options.precision,
        )
    answers = None
    if "start" in options.rows:
        if say is not None:
            say("measuring the start of the command")
        answers = seconds_to_answer()
    return {
        "kind": "side by side",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": job_options | {"model": ceiling["model"]["name"]},
        "model": ceiling["model"],
        "machine": ceiling["machine"],
        "versions": all_versions(),
        "ceiling": {key: ceiling[key] for key in ("teraflops", "tokens")},
        "reference": reference_variant().name,
        "rows": [row.to_dict() for row in rows],
        "score": scored,
        "seconds_to_answer": answers,
    }


def _variants(options: Options) -> list[Variant]:
    """Return the variants to run; plain rows need the reference, whose chains they continue."""
    rows = set(options.rows)
    return [
        variant
        for variant in VARIANTS
        if rows & {"c", variant.name} or (variant == reference_variant() and rows & {"a", "b"})
    ]


def _compare(scored: list[dict[str, Any]], precision: str) -> dict[str, Any]:
    """Compare the scorers; their values must agree for the speeds to be comparable."""
    ours, theirs = scored
    rows = [
        {key: value for key, value in row.items() if key not in ("energies", "model", "machine")}
        for row in scored
    ]
    if "missing" in theirs:
        return {"rows": rows, "compared": 0, "largest_difference": None, "agree": None,
                "ratio": None}  # fmt: skip
    pairs = list(zip(ours["energies"], theirs["energies"], strict=False))
    gaps = [abs(our_energy - their_energy) for our_energy, their_energy in pairs]
    tolerance = _TOLERANCE[precision]
    return {
        "rows": rows,
        "compared": len(pairs),
        "largest_difference": max(gaps),
        "agree": all(gap <= tolerance * abs(e) for gap, (e, _) in zip(gaps, pairs, strict=True)),
        "ratio": divide(ours["sentences_per_second"], theirs["sentences_per_second"]),
    }
