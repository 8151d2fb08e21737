"""What a diagnosis says of the rule and of the run, in one sentence each.

A rule that leaves its target invariant is exact, however short the run: the two are told apart, so
that a run that should be longer does not look like a wrong one.
"""

from __future__ import annotations

from maskov.diagnostics.diagnosis import Diagnosis

_EXACT = "The rule is exact"
_ENDINGS = {
    "converged": ", and the chains agree",
    "not converged": "; the run is too short",
    "too short to tell": "; the run is too short",
    "constant": "; the chains did not move",
    "one chain": "; one chain has no other to agree with",
    "single chains": "; no two chains can be compared",
    "not judged": "; the run cannot be judged",
}
_NO_TARGET = {
    "annealed": "The temperature still changes: there is no fixed target",
    "forced": "Acceptance is forced: there is no target",
}


def headline(diagnosis: Diagnosis) -> str:
    """Return whether the rule is exact, and what the run lacks."""
    state = diagnosis.verdict.state
    if state not in _ENDINGS:
        return _NO_TARGET.get(state, "The rule is not exact: its samples have no target")
    if state == "not converged" and diagnosis.verdict.times_longer is None:
        return f"{_EXACT}; the chains disagree"
    return _EXACT + _ENDINGS[state]


def tone(diagnosis: Diagnosis) -> str:
    """Return `good`, `open` (more work would help) or `bad` (the samples have no target)."""
    state = diagnosis.verdict.state
    if state == "converged":
        return "good"
    return "bad" if state in ("no target", "forced", "constant") else "open"
