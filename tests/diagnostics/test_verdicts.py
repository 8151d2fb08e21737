"""The verdict: each state where it belongs, with its reason; numbers only where there are any."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arviz_stats.base import array_stats
from made_up_runs import autoregressive, manifest, sticky, traces

from maskov import LinearSchedule
from maskov.config import Inputs, Manifest, UntilConverged
from maskov.diagnostics import Diagnosis, diagnose, summarise
from maskov.diagnostics.convergence import convergence
from maskov.diagnostics.tokens import TokenStatistic
from maskov.diagnostics.verdict import judge, times_longer


def noise(epochs: int, chains: int = 4, apart: float = 0.0) -> np.ndarray:
    return autoregressive(0.0, epochs, chains) + apart * np.arange(chains)


GIBBS = {"leaves_invariant": False, "kernel": "gibbs"}
ANNEALED = {"target_temperature": LinearSchedule(1.0, rate=1e-3, floor=0.1)}
SETTLED = {"target_temperature": LinearSchedule(1.0, rate=0.1, floor=0.5), "burn_in": 10}
LENGTHS = {"inputs": Inputs(length=(5, 7))}


@pytest.mark.parametrize(
    ("raw", "steps", "changes", "state", "headline", "tone", "advice"),
    [
        (noise(1000), 5, {}, "converged", "has converged", "good", ""),
        (noise(20), 5, {}, "not converged", "too short", "open", "--epochs"),
        (noise(100, apart=50), 5, {}, "not converged", "has not converged", "open",
         "--burn-in 50 or --moves site:1,span:2 or --particles 64"),
        *((noise(epochs), 5, {}, f"too short to tell: {epochs} traced epochs", "too short", "open",
           "--epochs") for epochs in (1, 7)),
        (noise(400, 1), 5, {}, "one chain", "one chain", "open", "--chains 8"),
        (noise(400, 3, 100), [5, 6, 7], LENGTHS, "single chains", "no two chains", "open",
         "--chains 8"),
        (np.full((50, 4), 3.0), 5, {}, "constant: E_raw never moved", "did not move", "bad",
         "--moves"),
        *((noise(epochs), 5, {"leaves_invariant": False} | changes, said, "no", tone, advice)
          for epochs in (10, 400)
          for changes, said, tone, advice in (
              (GIBBS, "no target: degenerate Gibbs", "bad", "--kernel mh"),
              ({"kernel": "Mine"}, "no target: Mine", "bad", "--kernel mh"),
              ({"schedule": ANNEALED}, "annealed", "open", "--target-temperature"),
              ({"schedule": {"force_accept": 9}}, "forced", "bad", "--burn-in 9"),
          )),
        (noise(1010), 5, {"schedule": SETTLED}, "converged", "has converged", "good", ""),
        (noise(400), 5, {"kernel": "draws"}, "independent draws", "independent", "good", ""),
    ],
)  # fmt: skip
def test_each_state_has_its_reason_headline_and_advice(
    raw, steps, changes, state, headline, tone, advice
):
    about = manifest(*raw.shape, **changes)
    found = diagnose(about, traces(raw, steps=np.array(steps)))
    assert str(found.verdict).startswith(state)
    assert headline in found.verdict.headline
    assert (found.verdict.tone, advice in found.verdict.advice) == (tone, True)
    assert found.verdict.lines()[1:] == [f"try next: {found.verdict.advice}"] * bool(advice)
    energy = found.energies["E_raw"]
    numbers = (energy.ess_bulk, energy.mcse, energy.time, energy.autocorrelation)
    if len(raw) < 8 or not np.ptp(raw):  # a mean and nothing else
        assert energy.mean == pytest.approx(raw.mean())
        assert {*numbers, energy.r_hat} == {None}
    if raw.shape[1] == 1 or state == "single chains":
        assert (energy.r_hat, energy.ess_bulk > 200) == (None, True)
    if state == "single chains":
        assert (found.groups, found.single_groups) == (3, 3)
        assert any("3 of 3 groups" in note for note in found.notes)


def test_chains_that_disagree_have_not_and_the_energy_is_named():
    agreed, apart = autoregressive(0.0, 200, 4), autoregressive(0.0, 200, 4, seed=1)
    apart[:, 3] += 0.9
    found = diagnose(manifest(200, 4), traces(agreed, apart))
    one = found.energies["E_norm"]
    assert one.r_hat_limit < one.r_hat < 1.3
    assert f"nested R-hat {one.r_hat:.3f} of E_norm (below {one.r_hat_limit:.3f}" in str(
        found.verdict
    )
    assert found.verdict.times_longer == times_longer(one.r_hat, one.ess_bulk, 100)
    assert found.energies["E_raw"].r_hat < 1.02


def test_the_tails_count_as_well_as_the_bulk():
    energy = diagnose(manifest(1000, 4), traces(autoregressive(0.0, 1000, 4))).energies["E_raw"]
    thin = replace(energy, ess_tail=25.0)
    found = judge(manifest(1000, 4), {"E_raw": energy, "E_norm": thin})
    assert str(found) == ("not converged: 25 effective draws of E_norm (at least 100 are needed)")
    assert found.times_longer == 4
    assert judge(manifest(1000, 4), {"E_raw": energy, "E_norm": energy}).state == "converged"


def drawn(seed: int, epochs: int, chains: int, memory: float, words: int) -> Diagnosis:
    """Return the diagnosis of chains with two energies and five tokens, all of the same memory."""
    energies = [autoregressive(memory, epochs, chains, seed=2 * seed + part) for part in (0, 1)]
    tokens = sticky(memory, epochs, chains, 5, words, seed)
    values = traces(*energies) | {"tokens": tokens, "rejected": np.ones_like(tokens, dtype=bool)}
    return diagnose(manifest(epochs, chains), values)


SHAPES = [(16, 32), (200, 8), (4, 500)]


@pytest.mark.parametrize(
    ("chains", "epochs", "words"),
    [
        (16, 32, 100), (200, 8, 2),
        *(pytest.param(*case, marks=pytest.mark.slow)
          for case in ((16, 32, 2), (200, 8, 100), (4, 500, 2), (4, 500, 100))),
    ],
)  # fmt: skip
def test_independent_draws_have_converged(chains, epochs, words):
    """Also those of tokens that make up a hundredth of all; at least 95 % of the first 20 runs."""
    found = [drawn(seed, epochs, chains, 0.0, words).verdict.state for seed in range(20)]
    assert found.count("converged") >= 19


@pytest.mark.parametrize(("chains", "epochs"), [*SHAPES, (200, 32)])
def test_chains_that_remember_have_not(chains, epochs):
    found = [drawn(seed, epochs, chains, 0.99, 30).verdict.state for seed in range(5)]
    assert set(found) == {"not converged"}


@pytest.mark.parametrize(("chains", "epochs"), [*SHAPES, (200, 32)])
def test_chains_that_are_stuck_in_two_vocabularies_have_not(chains, epochs):
    """No token is common, and all energies agree: it is the choice of tokens that differs."""
    tokens = sticky(0.0, epochs, chains, 5, 30)
    tokens += (30 * (np.arange(chains) % 2)).astype(np.int32)[:, None]
    values = traces(autoregressive(0.0, epochs, chains))
    assert diagnose(manifest(epochs, chains), values).verdict.state == "converged"
    values |= {"tokens": tokens, "rejected": np.ones_like(tokens, dtype=bool)}
    found = diagnose(manifest(epochs, chains), values).verdict
    assert found.state == "not converged"
    assert found.reason.startswith("nested R-hat infinite of the choice of tokens")
    assert "--epochs" not in found.advice


FIGURES = diagnose(manifest(300, 8), traces(autoregressive(0.0, 300, 8))).energies["E_raw"]


def share(ess: float, r_hat: float = 1.01, chains: int = 8) -> TokenStatistic:
    return TokenStatistic(
        name="the share of 'the'",
        chains=chains,
        mean=0.1,
        r_hat=r_hat,
        r_hat_limit=1.1,
        ess_bulk=ess,
    )


def about(**kernel: Any) -> Manifest:
    made = manifest(110, 8, schedule={"burn_in": 10})
    conditional = {"part": "masked", "top_k": None, "top_p": 1.0, "epsilon": 0.0}
    move = {"part": "site", "conditional": conditional} | kernel
    object.__setattr__(made.config, "kernel", {"part": "mh", "move": move})
    return made


@pytest.mark.parametrize(
    ("statistic", "said", "longer", "advice"),
    [
        (share(20), "20 effective draws of the share of 'the' (at least 100", 5.0,
         "--epochs 510, or --until converged"),
        # A statistic of a quarter of the chains needs a quarter of the draws.
        (share(20, chains=2), "(at least 25 are", 1.25, "--epochs 140, or --until converged"),
        (share(700, r_hat=1.15), "R-hat 1.150 of the share of 'the' (below 1.100", 1.68,
         "--epochs 180, or --until converged"),
        (share(8, r_hat=np.inf), "R-hat infinite of", None,
         "--moves site:1,span:2 or --particles 64"),
        (share(4), ": 4 effective draws", None, "--moves site:1,span:2 or --particles 64"),
        (share(700, r_hat=1.07), "converged: nested R-hat 1.070 of the share of 'the' at most, 700",
         1.0, ""),
    ],
)  # fmt: skip
def test_one_number_of_draws_one_length_and_one_piece_of_advice(statistic, said, longer, advice):
    found = judge(about(), {"E_raw": FIGURES, "E_norm": FIGURES}, [statistic])
    assert said in str(found)
    assert (found.state == "converged") == (longer == 1.0)
    assert found.times_longer == (longer and pytest.approx(longer, abs=0.01))
    assert found.advice == advice


def test_a_run_that_was_to_stop_is_judged_by_the_draws_it_was_to_have():
    values = traces(autoregressive(0.5, 20, 8))
    assert diagnose(manifest(20, 8), values).verdict.state == "not converged"
    made = manifest(20, 8)
    object.__setattr__(made.config, "until", UntilConverged(effective=20))
    assert diagnose(made, values).verdict.state == "converged"


def test_burn_in_and_epochs_not_yet_done_do_not_count():
    raw = autoregressive(0.0, 400, 4)
    whole = traces(raw.copy())
    whole["energy_raw"][:50] += 1000
    for name in ("energy_raw", "energy_norm"):
        whole[name][350:] = np.nan
    whole["steps"][350:] = 0
    found = diagnose(manifest(400, 4, schedule={"burn_in": 50}), whole)
    alone = diagnose(manifest(300, 4), traces(raw[50:350]))
    assert found.epochs == 300
    assert found.energies == alone.energies
    begun = diagnose(manifest(400, 4, schedule={"burn_in": 360}), whole)
    assert begun.verdict.reason.startswith("0 traced epochs")
    assert begun.energies["E_raw"].mean is None


def test_chains_of_different_lengths_are_not_pooled():
    steps = np.array([5, 5, 7, 7, 7, 7])
    raw = autoregressive(0.0, 400, 6) + 100 * steps
    mixed = {"inputs": Inputs(length=(5, 7))}
    values = traces(raw, steps=steps)
    found = diagnose(manifest(400, 6, **mixed), values)
    assert found.verdict.state == "converged"
    assert [(one.length, one.chains) for one in found.energies["E_raw"].groups] == [(5, 2), (7, 4)]
    parts = raw[:, :2].T, raw[:, 2:].T  # chains × draws, for ArviZ itself
    sizes, errors = (
        [float(function(part)) for part in parts]
        for function in (array_stats.ess, array_stats.mcse)
    )
    energy = found.energies["E_raw"]
    own = [convergence(part.T, 2) for part in parts]
    worst = max(own, key=lambda one: one.r_hat - one.r_hat_limit)
    assert (energy.r_hat, energy.r_hat_limit) == (worst.r_hat, worst.r_hat_limit)
    assert energy.ess_bulk == pytest.approx(sum(sizes))
    # Energies grow with the length: there is a mean for each, and none over both.
    assert energy.mean is energy.mcse is None
    assert [one.mcse for one in energy.groups] == pytest.approx(errors)
    assert summarise(manifest(400, 6, **mixed), values).energy_raw_mean is None
    # As one group they would be as far apart as their lengths.
    assert diagnose(manifest(400, 6), traces(raw)).verdict.state == "not converged"
