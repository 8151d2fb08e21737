"""The page of claims: every claim that was tested, its verdict and its comparisons."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from experiments.paper.claims import CLAIMS
from experiments.paper.verdicts import (
    FAILED,
    HELD,
    NOT_RUN,
    PART,
    UNSETTLED,
    Claim,
    Documents,
    Outcome,
)

# Claims that one energy is better, which likelihood judges, too, and where that was measured.
BY_LIKELIHOOD = (
    "For unconditional text E_raw is the better energy",
    "Unconditional quality: E_raw before E_norm before degenerate Gibbs",
)
EVIDENCE = Path(__file__).parents[2] / "results" / "evidence"


def render_page(documents: Documents) -> str:
    """Return the page of claims of the results in one folder."""
    tested = [
        (claim, *verdict) for claim in CLAIMS if (verdict := claim.verdict(documents))[0] != NOT_RUN
    ]
    lines = [
        "# The paper's claims, one by one",
        "",
        f"{counts((claim, verdict) for claim, verdict, _ in tested)} `python -m experiments "
        "report` renders this page from the JSON documents of this folder; "
        "docs/reference/reproduce.md describes the settings and the estimates. A comparison is "
        "settled if the difference exceeds two standard errors: over chains, or, for BLEU of the "
        "last texts, over sentences (a paired bootstrap).",
    ]
    for number, (claim, verdict, outcomes) in enumerate(tested, 1):
        document = documents[claim.result]
        missing = "" if document["complete"] else " (some cells are missing)"
        lines += [
            "",
            f"## {number}. {claim.text}",
            "",
            f"**{verdict}** · [{claim.result}]({claim.result}.md), setting "
            f"`{document['setting']}`{missing} · {claim.criterion}",
            "",
            *map(_line, outcomes),
            *(_by_likelihood() if claim.text in BY_LIKELIHOOD else ()),
        ]
    return "\n".join(lines) + "\n"


def _by_likelihood() -> list[str]:
    """Return what the likelihood of held-out text says of E_raw and E_norm, if it was measured.

    Each is taken at the temperature that is best for it among those that were measured.
    """
    lines = []
    for path in sorted(EVIDENCE.glob("wiki-*.json")):
        document = json.loads(path.read_text())
        targets = document["targets"]
        every = [
            [one for key, one in targets.items() if key.rpartition("@")[0] == name]
            for name in ("raw", "norm")
        ]
        if not all(every):
            continue
        raw, norm = (min(one, key=lambda target: target["nats_per_token"]) for one in every)
        apart = raw["nats_per_token"] - norm["nats_per_token"]
        error = math.hypot(raw["error"], norm["error"])
        # Both are lower bounds; that of E_norm is a value only if its populations agree.
        verdict = "not settled"
        if apart > 2 * error:
            verdict = FAILED if norm["agree"] else f"{verdict}, and against it so far"
        lines += [
            "",
            f"By likelihood: **{verdict}** · results/evidence ({document['model']}): held-out "
            f"sentences of {raw['lengths'][0]['length']} tokens have at least "
            f"{raw['nats_per_token']:.2f} nats per token under exp(−E_raw/T) at "
            f"T = {raw['temperature']:g}, and at least "
            f"{norm['nats_per_token']:.2f} under exp(−E_norm/T) at T = {norm['temperature']:g}; "
            "lower is better.",
        ]
    return lines


def counts(verdicts: Iterable[tuple[Claim, str]]) -> str:
    """Count the verdicts on the paper's claims and on ours."""
    by_owner: dict[bool, list[str]] = {}
    for claim, verdict in verdicts:
        by_owner.setdefault(claim.papers, []).append(verdict)
    return " ".join(
        f"{len(by_owner[papers])} claims {owner}: {count(by_owner[papers])}."
        for papers, owner in ((True, "of the paper"), (False, "of ours"))
        if papers in by_owner
    )


def count(verdicts: list[str]) -> str:
    """Count verdicts, as in "2 held, 1 not run"."""
    words = {word: verdicts.count(word) for word in (HELD, PART, FAILED, UNSETTLED, NOT_RUN)}
    return ", ".join(f"{number} {word}" for word, number in words.items() if number)


def _line(outcome: Outcome) -> str:
    mark = {True: "yes", False: "no", None: "not settled"}[outcome.holds]
    printed = f"; the paper: {outcome.paper}" if outcome.paper else ""
    return f"- {mark}: {outcome.ours}{printed}"
