"""Claims of the paper and their verdicts.

A claim is tested by comparisons. A comparison holds if the difference exceeds two standard errors
in the claimed direction, fails if it does so in the other direction, and is otherwise undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.lib.result import Document

Documents = dict[str, Document]

HELD, PART, FAILED = "held", "held in part", "did not hold here"
UNSETTLED, NOT_RUN = "not settled", "not run"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one comparison; `holds` is None if it is undecided."""

    holds: bool | None
    ours: str
    paper: str = ""


# A verdict and the outcomes it follows from.
Verdict = tuple[str, list[Outcome]]
# Maps all results to the outcomes of a claim, or to None if numbers are missing.
Test = Callable[[Documents], "list[Outcome] | None"]


@dataclass(frozen=True)
class Claim:
    """One claim: its statement, the result it belongs to, its test, and what is compared."""

    text: str
    result: str
    test: Test
    criterion: str

    @property
    def papers(self) -> bool:
        """Whether the claim is the paper's, not ours."""
        return not self.text.startswith("Ours")

    def verdict(self, documents: Documents) -> Verdict:
        """Return the verdict and the outcomes it follows from."""
        outcomes = self.test(documents) if self.result in documents else None
        if not outcomes:
            return NOT_RUN, []
        holds = [outcome.holds for outcome in outcomes]
        if all(value is True for value in holds):
            return HELD, outcomes
        if any(value is True for value in holds):
            return PART, outcomes
        return (FAILED if any(value is False for value in holds) else UNSETTLED), outcomes
