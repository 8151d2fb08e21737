"""The page of claims: every claim with its verdict, rendered from stored results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.lib.chains import TextChains
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
    Verdict,
)

# The explanation of a verdict for which a claim gives none.
_DEFAULT_EXPLANATIONS = {
    HELD: "Every comparison above is settled in its favour.",
    PART: "Some comparisons above hold; the others fail or need a larger setting.",
    FAILED: "No comparison above agrees with it.",
    UNSETTLED: "The run was too small to decide; use a larger setting.",
    NOT_RUN: "Its cells have not been run here.",
}


@dataclass(frozen=True)
class OtherModel:
    """Results of another model, shown below the main ones where both tested a claim.

    Where it is another translation model, comparisons of text are those of the `main` results.
    """

    title: str
    documents: Documents
    folder: str
    main: Documents = field(default_factory=dict)

    def verdict(self, claim: Claim) -> Verdict:
        """Return its verdict on a claim, if any of its own results tests it."""
        verdict, outcomes = claim.verdict(self.documents)
        if verdict == NOT_RUN:
            return verdict, outcomes
        return claim.verdict(with_text_of(self.main, self.documents))


def with_text_of(main: Documents, documents: Documents) -> Documents:
    """Return the results of another translation model with the main results of text.

    Unconditional text does not depend on the translation model. Results that have text of their
    own are of another model of text, and stay as they are.
    """
    cells = [cell for document in documents.values() for cell in document["cells"].values()]
    if any(cell.get("kind") == TextChains.kind for cell in cells):
        return documents
    completed = {}
    for name, document in documents.items():
        found = main.get(name, document)
        text = {
            label: cell
            for label, cell in found["cells"].items()
            if cell.get("kind") == TextChains.kind and label not in document["cells"]
        }
        rows = [row for row in document["comparison"] if row["cell"] not in text]
        rows += [row for row in found["comparison"] if row["cell"] in text]
        completed[name] = document | {"comparison": rows, "cells": document["cells"] | text}
    return completed


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
    papers = [verdict for claim, (verdict, _) in zip(claims, verdicts, strict=True) if claim.papers]
    ours = [
        verdict for claim, (verdict, _) in zip(claims, verdicts, strict=True) if not claim.papers
    ]
    summary = f"{len(papers)} claims of the paper: {_count(papers)}."
    if ours:
        summary += f" {len(ours)} claims of ours: {_count(ours)}."
    lines = [
        "# The paper's claims, one by one",
        "",
        f"{summary} `python -m experiments report` renders this page from "
        "the results; each claim links to its table, figure and JSON. "
        "docs/reference/reproduce.md describes "
        "the settings and the estimates. A comparison is settled if the difference exceeds two "
        "standard errors: over chains, or, for BLEU of the last texts, over sentences (a paired "
        "bootstrap)."
        + (
            " Comparisons of unconditional text beside another translation model are those of our "
            "own results, which do not depend on it."
            if others
            else ""
        ),
        "",
        *_verdict_table(claims, verdicts, others),
        "",
        *_summaries(claims, verdicts, others),
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


def _count(verdicts: Sequence[str]) -> str:
    """Count verdicts, as in "2 held, 1 not run"."""
    counts = {word: verdicts.count(word) for word in (HELD, PART, FAILED, UNSETTLED, NOT_RUN)}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _verdict_table(
    claims: list[Claim], verdicts: Sequence[Verdict], others: Sequence[OtherModel]
) -> list[str]:
    lines = [
        "| | claim | here |" + "".join(f" {other.title} |" for other in others),
        "|---|---|---|" + "---|" * len(others),
    ]
    for number, (claim, ours) in enumerate(zip(claims, verdicts, strict=True), 1):
        row = f"| {number} | {claim.text} | **{ours[0]}** |"
        for other in others:
            theirs = other.verdict(claim)
            row += " |" if theirs[0] == NOT_RUN else f" {theirs[0]}{_part_tested(theirs, ours)} |"
        lines.append(row)
    return lines


def _part_tested(theirs: Verdict, ours: Verdict) -> str:
    """Say how many of our comparisons another model has, if not all."""
    counts = len(theirs[1]), len(ours[1])
    return f" ({counts[0]} of {counts[1]} comparisons)" if counts[0] < counts[1] else ""


def _summaries(
    claims: list[Claim], verdicts: Sequence[Verdict], others: Sequence[OtherModel]
) -> list[str]:
    """Count the verdicts of each other model, and the claims that hold with any model.

    Where another model has only some of the comparisons, a claim that holds counts for it, but not
    among those that hold with any model.
    """
    if not others:
        return []
    held = {claim.text for claim, ours in zip(claims, verdicts, strict=True) if ours[0] == HELD}
    lines = []
    for other in others:
        tested = []
        for claim, ours in zip(claims, verdicts, strict=True):
            theirs = other.verdict(claim)
            if theirs[0] != NOT_RUN:
                tested.append(theirs[0])
            if theirs[0] == HELD and not _part_tested(theirs, ours):
                held.add(claim.text)
        lines.append(f"- {other.title}: {_count(tested) or 'none tested'}.")
    papers = [claim.text for claim in claims if claim.papers]
    lines.append(
        f"- Of the paper's {len(papers)} claims, {len(held.intersection(papers))} hold with at "
        "least one model, in all comparisons."
    )
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
    verdict, outcomes = other.verdict(claim)
    if verdict == NOT_RUN:
        return []
    link = _link(claim, verdict, other.documents, other.folder)
    return [f"{other.title[:1].upper()}{other.title[1:]}: **{verdict}** · {link}", "",
            *_list_outcomes(outcomes)]  # fmt: skip
