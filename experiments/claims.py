"""The paper's claims as tests on results, and the page that says how each fared.

A claim names the comparisons that it stands or falls by. A comparison holds if the difference is
more than two standard errors in the right direction, fails if it is so in the wrong one, and is
otherwise not settled. Nothing on the page is written by hand but the claims themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

from experiments.bleu import paired_difference
from experiments.quantities import QUANTITIES, SAMPLERS
from experiments.result import Document, found

Documents = dict[str, Document]
Row = dict[str, Any]

HELD, PART, FAILED = "held", "held in part", "did not hold here"
UNSETTLED, NOT_RUN = "not settled", "not run"
# What is said of a verdict where a claim has nothing of its own to say.
_USUAL = {
    HELD: "Every comparison above is settled, and in the paper's favour.",
    PART: "Some comparisons above hold; the others do not, or need a larger setting to be settled.",
    FAILED: "Nothing above came out as the paper has it.",
    UNSETTLED: "The run was too small to tell: a larger setting would.",
    NOT_RUN: "Its cells have not been run here.",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one comparison: true, false, or None where two errors do not settle it."""

    holds: bool | None
    ours: str
    paper: str = ""


# From all results to the outcomes of a claim; None where something is missing.
Test = Callable[[Documents], "list[Outcome] | None"]


@dataclass(frozen=True)
class Claim:
    """One claim: the paper's words in short, where they stand, how it is tested, what it shows."""

    text: str
    result: str
    test: Test
    tested: str
    why: dict[str, str]

    def verdict(self, documents: Documents) -> tuple[str, list[Outcome]]:
        """Return how the claim fared."""
        outcomes = self.test(documents) if self.result in documents else None
        if not outcomes:
            return NOT_RUN, []
        holds = [outcome.holds for outcome in outcomes]
        if all(one is True for one in holds):
            return HELD, outcomes
        if any(one is True for one in holds):
            return PART, outcomes
        return (FAILED if any(one is False for one in holds) else UNSETTLED), outcomes


Point = tuple[str, str, "float | str"]  # quantity, series, x


def less(result: str, *pairs: tuple[Point, Point]) -> Test:
    """Test that the first number of each pair is below the second.

    BLEU of the last texts is compared sentence by sentence, where both cells have kept the counts.
    """

    def test(documents: Documents) -> list[Outcome] | None:
        outcomes = []
        for low, high in pairs:
            rows = found(documents[result], *low), found(documents[result], *high)
            if rows[0] is None or rows[1] is None:
                continue
            holds = settled(*difference(documents[result], *rows))
            printed = ""
            if rows[0]["paper"] is not None and rows[1]["paper"] is not None:
                printed = f"{rows[0]['paper']:g} < {rows[1]['paper']:g}"
            sign = "<" if holds else "≥" if holds is False else "≈"
            outcomes.append(Outcome(holds, _said(low, high, rows, sign), printed))
        return outcomes or None

    return test


def settled(gap: float, error: float) -> bool | None:
    """Say whether a difference is above zero; None where two standard errors do not settle it."""
    return None if abs(gap) <= 2 * error else gap > 0


def difference(document: Document, low: Row, high: Row) -> tuple[float, float]:
    """Return how far the second number lies above the first, and the standard error of that."""
    counts = [document["cells"][row["cell"]].get("sentence_counts") for row in (low, high)]
    last = low["quantity"] == high["quantity"] == "bleu_last"
    if last and counts[0] and counts[1] and len(counts[0]) == len(counts[1]):
        return paired_difference(counts[0], counts[1])
    error = hypot(low["standard_error"] or 0.0, high["standard_error"] or 0.0)
    return high["ours"] - low["ours"], error


def between(result: str, *wanted: tuple[Point, float, float]) -> Test:
    """Test that numbers lie within bounds, at most two standard errors outside being unsettled."""

    def test(documents: Documents) -> list[Outcome] | None:
        outcomes = []
        for point, low, high in wanted:
            row = found(documents[result], *point)
            if row is None:
                continue
            value, error = row["ours"], 2 * (row["standard_error"] or 0.0)
            inside = low <= value <= high
            near = low - error <= value <= high + error
            name, digits = QUANTITIES[point[0]]
            at = f", {point[2]}" if isinstance(point[2], float) else ""
            text = f"{_series(point)} {name}{at}: {value:.{digits}f} (asked: {low:g} to {high:g})"
            printed = "" if row["paper"] is None else f"{row['paper']:g}"
            outcomes.append(Outcome(True if inside else None if near else False, text, printed))
        return outcomes or None

    return test


def _said(low: Point, high: Point, rows: tuple, sign: str) -> str:
    _, digits = QUANTITIES[low[0]]
    name = QUANTITIES[low[0]][0]
    same = _series(low) == _series(high)
    sides = [
        f"{_series(point) + ' ' if not same else ''}{row['ours']:.{digits}f}"
        + (f" ({point[2]})" if low[2] != high[2] else "")
        for point, row in zip((low, high), rows, strict=True)
    ]
    where = f"{_series(low)} " if same else ""
    beside = f", {low[2]}" if low[2] == high[2] and low[2] not in ("value", "text") else ""
    return f"{name}{beside}: {where}{sides[0]} {sign} {sides[1]}"


def _series(point: Point) -> str:
    return SAMPLERS.get(point[1], point[1])


@dataclass(frozen=True)
class Beside:
    """Results of another model, to stand beside the first ones where both have tested a claim."""

    title: str
    documents: Documents
    folder: str


def page(
    documents: Documents, folder: str = "", beside: Sequence[Beside] = (), partly: bool = False
) -> str:
    """Return the page of all claims; results are in `folder`, as seen from the page.

    With `partly` claims that these results do not speak of are left out, and so are the reasons
    given for a verdict, which are about the shipped models.
    """
    from experiments.claimed import CLAIMS

    claims = [claim for claim in CLAIMS if not partly or claim.result in documents]
    verdicts = [claim.verdict(documents) for claim in claims]
    counts = {
        word: sum(verdict == word for verdict, _ in verdicts)
        for word in (HELD, PART, FAILED, UNSETTLED, NOT_RUN)
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    lines = [
        "# The paper's claims, one by one",
        "",
        f"{len(claims)} claims: {told}. This page is rendered from results by `maskov reproduce "
        "report`; each claim links to its table, figure and JSON. docs/reproduce.md says how large "
        "the settings are and how things are counted. A comparison is settled where the difference "
        "is more than two standard errors: over chains, and for BLEU of the last texts over "
        "sentences, both sides on the same resamples of them.",
        "",
        *_summary(claims, [verdict for verdict, _ in verdicts], beside),
        "",
    ]
    for number, (claim, (verdict, outcomes)) in enumerate(zip(claims, verdicts, strict=True), 1):
        lines += [f"## {number}. {claim.text}", ""]
        lines += [f"**{verdict}** · {_link(claim, verdict, documents, folder)} · {claim.tested}"]
        why = {} if partly else claim.why
        lines += ["", *_told(outcomes), "", why.get(verdict, _USUAL[verdict]), ""]
        for other in beside:
            lines += [*_also(claim, other), ""]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _summary(claims: list[Claim], verdicts: list[str], beside: Sequence[Beside]) -> list[str]:
    """Return a table of all verdicts."""
    lines = [
        "| | claim | here |" + "".join(f" {other.title} |" for other in beside),
        "|---|---|---|" + "---|" * len(beside),
    ]
    for number, (claim, verdict) in enumerate(zip(claims, verdicts, strict=True), 1):
        row = f"| {number} | {claim.text} | **{verdict}** |"
        for other in beside:
            also = claim.verdict(other.documents)[0]
            row += " |" if also == NOT_RUN else f" {also} |"
        lines.append(row)
    return lines


def _link(claim: Claim, verdict: str, documents: Documents, folder: str) -> str:
    if verdict == NOT_RUN:
        return claim.result
    document = documents[claim.result]
    missing = "" if document["complete"] else " (some cells are still missing)"
    return f"[{claim.result}]({folder}{claim.result}.md), setting `{document['setting']}`{missing}"


def _told(outcomes: list[Outcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        mark = {True: "yes", False: "no", None: "not settled"}[outcome.holds]
        printed = f"; the paper: {outcome.paper}" if outcome.paper else ""
        lines.append(f"- {mark}: {outcome.ours}{printed}")
    return lines


def _also(claim: Claim, beside: Beside) -> list[str]:
    verdict, outcomes = claim.verdict(beside.documents)
    if verdict == NOT_RUN:
        return []
    link = _link(claim, verdict, beside.documents, beside.folder)
    return [f"{beside.title[:1].upper()}{beside.title[1:]}: **{verdict}** · {link}", "",
            *_told(outcomes)]  # fmt: skip
