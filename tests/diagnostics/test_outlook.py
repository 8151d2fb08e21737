"""How much longer a run would need, word for word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_up_runs import manifest, sticky, traces

from ar_chains import autoregressive
from maskov.config import UntilConverged
from maskov.diagnostics import diagnose
from maskov.diagnostics.energies import EnergyFigures
from maskov.diagnostics.outlook import mixing_options, outlook
from maskov.diagnostics.statistics import TokenStatistic
from maskov.diagnostics.verdict import judge, shown_r_hat

CONDITIONAL = {"part": "masked", "temperature": 1.0, "top_k": None, "top_p": 1.0, "epsilon": 0.0}


GROUPS = diagnose(manifest(20, 8), traces(autoregressive(0.0, 20, 8))).energies["E_raw"].groups


def energy(ess: float, r_hat: float = 1.003) -> EnergyFigures:
    return EnergyFigures(
        100, 1, 0.0, 0.1, r_hat, r_hat, ess, ess, ess, ess, 0, None, None, False, groups=[]
    )


def share(name: str, ess: float, r_hat: float = 1.01, chains: int = 8) -> TokenStatistic:
    return TokenStatistic(f"the share of '{name}'", chains, 0.1, r_hat, ess)


def about(**changes):
    made = manifest(100, 8, schedule={"burn_in": 10}, **changes)
    kernel = {"part": "mh", "move": {"part": "site", "conditional": CONDITIONAL}}
    object.__setattr__(made.config, "kernel", kernel)
    return made


def said(*numbers) -> str:
    energies = {"E_raw": numbers[0], "E_norm": energy(1000)}
    return outlook(about(), energies, numbers[1:]).text


def test_factors_of_the_energy_and_of_the_slowest_and_fastest_statistic():
    assert said(energy(35), share("the", 9), share("of", 30), share(",", 240)) == (
        "about 3 × as many epochs for 100 effective draws of E_raw; the slowest token statistic is "
        "the share of 'the': about 20 × as many epochs for 100 effective draws; the fastest is the "
        "share of ',': 240 effective draws"
    )
    assert said(energy(130), share("the", 70)) == (
        "130 effective draws of E_raw; the slowest token statistic is the share of 'the': about "
        "1.5 × as many epochs for 100 effective draws"
    )
    assert said(energy(60)) == "about 2 × as many epochs for 100 effective draws of E_raw"


def test_chains_that_disagree_are_told_what_to_try():
    assert said(energy(500), share("the", 8, r_hat=np.inf)) == (
        "the chains disagree on the share of 'the': try --moves site:1,span:2 or --replicas 4"
    )
    assert said(energy(500), share("the", 0.9, r_hat=1.2)) == (
        "1 effective draws of the share of 'the', the slowest: try --moves site:1,span:2 or "
        "--replicas 4"
    )


def test_only_options_that_were_not_tried_are_named():
    made = about()
    cut = CONDITIONAL | {"top_p": 0.9, "temperature": 2.0}
    kernel = {"part": "mh", "move": {"part": "site", "conditional": cut}}
    object.__setattr__(made.config, "kernel", kernel)
    assert mixing_options(made) == ["--epsilon 0.05", "--moves site:1,span:2", "--replicas 4"]
    span = {"part": "mh", "move": {"part": "span", "conditional": CONDITIONAL}}
    object.__setattr__(made.config, "kernel", span)
    assert mixing_options(made) == ["--replicas 4"]
    object.__setattr__(made.config, "kernel", {"part": "exchange", "kernel": span})
    assert mixing_options(made) == []
    assert mixing_options(manifest(100, 8, kernel="Mine")) == ["--burn-in 50"]


def test_the_verdict_word_for_word():
    def words(first, *statistics, **changes) -> str:
        energies = {"E_raw": first, "E_norm": energy(1000)}
        return str(judge(about(**changes), energies, statistics))

    full = replace(energy(900), groups=GROUPS)
    assert words(full, share("the", 700)) == (
        "converged: R-hat 1.010 of the share of 'the' at most, 700 effective draws of the share "
        "of 'the' at least"
    )
    assert (
        words(full)
        == "converged: R-hat 1.0030 of E_raw at most, 900 effective draws of E_raw at least"
    )
    assert words(full, share("the", 100)) == (
        "borderline: 100 effective draws of the share of 'the' (at least 400 are needed); run "
        "about 4 times longer"
    )
    assert words(full, share("the", 700, r_hat=1.08)) == (
        "not converged: R-hat 1.080 of the share of 'the'; run about 2 times longer"
    )
    assert words(full, share("the", 8, r_hat=np.inf)) == (
        "not converged: R-hat infinite of the share of 'the'; more epochs of this kind may not help"
    )
    # A statistic of a quarter of the chains needs a quarter of the draws.
    assert words(full, share("the", 110, chains=2)).startswith("converged")


def test_a_run_that_was_to_stop_is_judged_by_what_it_was_to_stop_by():
    raw, tokens = autoregressive(0.5, 60, 8), sticky(0.3, 60, 8, 5, 2)
    values = traces(raw) | {"tokens": tokens, "rejected": np.ones_like(tokens, dtype=np.bool_)}
    usual = diagnose(about(), values | {})
    assert usual.verdict.state in ("borderline", "not converged")
    made = about()
    object.__setattr__(made.config, "until", UntilConverged(effective=20))
    found = diagnose(made, values)
    assert found.verdict.state == "converged"
    assert found.outlook.effective == 20


@pytest.mark.parametrize(
    ("r_hat", "shown"),
    [(1.0, "1.0000"), (1.003, "1.0030"), (1.01, "1.010"), (1.5215, "1.522"), (np.inf, "infinite")],
)
def test_r_hat_has_enough_digits(r_hat, shown):
    assert shown_r_hat(r_hat) == shown


def test_there_is_no_outlook_without_a_target_or_numbers():
    raw = autoregressive(0.0, 100, 8)
    assert diagnose(manifest(100, 8, leaves_invariant=False), traces(raw)).outlook is None
    assert diagnose(manifest(10, 8), traces(raw[:10])).outlook is None
    assert diagnose(manifest(100, 8), traces(0 * raw)).outlook is None
