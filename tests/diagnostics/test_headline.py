"""The headline: whether the rule is exact, and what the run lacks, in one plain sentence."""

from __future__ import annotations

import numpy as np
import pytest
from made_up_runs import manifest, traces

from maskov.diagnostics import diagnose, headline, tone


def of_chains(energies: np.ndarray, **changes):
    return diagnose(manifest(*energies.shape, **changes), traces(energies))


@pytest.mark.parametrize(
    ("apart", "epochs", "expected", "colour"),
    [
        (0.0, 2000, "The rule is exact, and the chains agree", "good"),
        (0.6, 60, "The rule is exact; the run is too short", "open"),
        (9.0, 60, "The rule is exact; the chains disagree", "open"),
        (0.0, 2, "The rule is exact; the run is too short", "open"),
    ],
)
def test_the_rule_and_the_run_are_told_apart(apart, epochs, expected, colour):
    noise = np.random.default_rng(0).normal(size=(epochs, 4))
    found = of_chains(noise + apart * np.arange(4))
    assert headline(found) == expected
    assert tone(found) == colour


def test_a_rule_without_a_target_is_not_called_exact():
    noise = np.random.default_rng(0).normal(size=(500, 4))
    found = of_chains(noise, kernel="gibbs", leaves_invariant=False)
    assert headline(found) == "The rule is not exact: its samples have no target"
    assert tone(found) == "bad"
    constant = of_chains(np.ones((50, 4)))
    assert headline(constant) == "The rule is exact; the chains did not move"
    one = of_chains(noise[:, :1])
    assert headline(one) == "The rule is exact; one chain has no other to agree with"
