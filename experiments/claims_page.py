"""The page of claims: every claim with its verdict, rendered from stored results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.claims import CLAIMS
from experiments.verdicts import (
    FAILED,
    HELD,
    NOT_RUN,
    PART,
    UNSETTLED,
    Claim,
    Documents,
    Outcome,
)

# The explanation of a verdict for which a claim gives none.
_DEFAULT_EXPLANATIONS = {
    HELD: "Every comparison above is settled in the paper's favour.",
    PART: "Some comparisons above hold; the others fail or need a larger setting.",
    FAILED: "No comparison above agrees with the paper.",
    UNSETTLED: "The run was too small to decide; use a larger setting.",
    NOT_RUN: "Its cells have not been run here.",
}


@dataclass(frozen=True)
class OtherModel:
    """Results of another model, shown below the main ones where both tested a claim."""

    title: str
    documents: Documents
    folder: str


def render_page(
    documents: Documents,
    folder: str = "",
    others: Sequence[OtherModel] = (),
    only_tested: bool = False,
) -> str:
    """Return the page of all claims; `folder` is the path from the page to the results.

    With `only_tested`, claims without results are left out, and so are the explanations of
    verdicts, which are about the shipped models.
    """
    claims = [
        claim for claim in CLAIMS if not only_tested or claim.verdict(documents)[0] != NOT_RUN
    ]
    verdicts = [claim.verdict(documents) for claim in claims]
    counts = {
        word: sum(verdict == word for verdict, _ in verdicts)
        for word in (HELD, PART, FAILED, UNSETTLED, NOT_RUN)
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    lines = [
        "# The paper's claims, one by one",
        "",
        f"{len(claims)} claims: {summary}. `python -m experiments report` renders this page from "
        "the results; each claim links to its table, figure and JSON. "
        "docs/reference/reproduce.md describes "
        "the settings and the estimates. A comparison is settled if the difference exceeds two "
        "standard errors: over chains, or, for BLEU of the last texts, over sentences (a paired "
        "bootstrap).",
        "",
        *_verdict_table(claims, [verdict for verdict, _ in verdicts], others),
        "",
        *_summaries(claims, [verdict for verdict, _ in verdicts], others),
    ]
    for number, (claim, (verdict, outcomes)) in enumerate(zip(claims, verdicts, strict=True), 1):
        lines += [f"## {number}. {claim.text}", ""]
        lines += [f"**{verdict}** · {_link(claim, verdict, documents, folder)} · {claim.criterion}"]
        explanations = {} if only_tested else claim.explanations
        explanation = explanations.get(verdict, _DEFAULT_EXPLANATIONS[verdict])
        lines += ["", *_list_outcomes(outcomes), "", explanation, ""]
        for other in others:
            lines += [*_other_section(claim, other), ""]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _verdict_table(
    claims: list[Claim], verdicts: list[str], others: Sequence[OtherModel]
) -> list[str]:
    lines = [
        "| | claim | here |" + "".join(f" {other.title} |" for other in others),
        "|---|---|---|" + "---|" * len(others),
    ]
    for number, (claim, verdict) in enumerate(zip(claims, verdicts, strict=True), 1):
        row = f"| {number} | {claim.text} | **{verdict}** |"
        for other in others:
            other_verdict = claim.verdict(other.documents)[0]
            row += " |" if other_verdict == NOT_RUN else f" {other_verdict} |"
        lines.append(row)
    return lines


def _summaries(claims: list[Claim], verdicts: list[str], others: Sequence[OtherModel]) -> list[str]:
    """Count the verdicts of each other model, and the claims that hold with any model."""
    if not others:
        return []
    held = [verdict == HELD for verdict in verdicts]
    lines = []
    for other in others:
        theirs = [claim.verdict(other.documents)[0] for claim in claims]
        held = [any(pair) for pair in zip(held, (v == HELD for v in theirs), strict=True)]
        counts = {word: theirs.count(word) for word in (HELD, PART, FAILED, UNSETTLED)}
        counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        lines.append(f"- {other.title}: {counted or 'none tested'}.")
    papers = [not claim.text.startswith("Ours") for claim in claims]
    with_any = sum(both for both in map(all, zip(held, papers, strict=True)))
    lines.append(f"- Of the paper's {sum(papers)} claims, {with_any} hold with at least one model.")
    return [*lines, ""]


def _link(claim: Claim, verdict: str, documents: Documents, folder: str) -> str:
    if verdict == NOT_RUN:
        return claim.result
    document = documents[claim.result]
    missing = "" if document["complete"] else " (some cells are missing)"
    return f"[{claim.result}]({folder}{claim.result}.md), setting `{document['setting']}`{missing}"


def _list_outcomes(outcomes: list[Outcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        mark = {True: "yes", False: "no", None: "not settled"}[outcome.holds]
        printed = f"; the paper: {outcome.paper}" if outcome.paper else ""
        lines.append(f"- {mark}: {outcome.ours}{printed}")
    return lines


def _other_section(claim: Claim, other: OtherModel) -> list[str]:
    verdict, outcomes = claim.verdict(other.documents)
    if verdict == NOT_RUN:
        return []
    link = _link(claim, verdict, other.documents, other.folder)
    return [f"{other.title[:1].upper()}{other.title[1:]}: **{verdict}** · {link}", "",
            *_list_outcomes(outcomes)]  # fmt: skip
