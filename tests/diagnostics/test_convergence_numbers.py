"""Numbers of convergence against ArviZ and theory: of energies, and of tokens."""

import math
from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats, array_stats as arviz
from made_up_runs import autoregressive, manifest, sticky, traces

from maskov.config import Inputs
from maskov.diagnostics import diagnose
from maskov.diagnostics.convergence import (
    Convergence,
    Group,
    autocorrelation,
    convergence,
    correlation_of,
    is_constant,
    nested_r_hat,
    r_hat_limit,
)
from maskov.diagnostics.tokens import token_correlation, token_statistics


def of_tokens(tokens, *groups):
    """Return the correlation of chains, all in one group unless told."""
    return token_correlation(tokens, groups or [Group(0, None, np.arange(tokens.shape[1]))])


@pytest.mark.parametrize("shape", [(60, 4), (25, 30)])
def test_the_sizes_are_those_of_arviz_with_chains_and_draws_the_right_way_round(shape):
    draws = autoregressive(0.7, *shape) + np.linspace(0, 1, shape[1])
    found, chains = convergence(draws), draws.T
    assert found.ess_bulk == float(arviz.ess(chains))
    assert found.ess_tail == float(arviz.ess(chains, method="tail", prob=(0.05, 0.95)))
    assert found.mcse == float(arviz.mcse(chains))


def test_nested_r_hat_is_that_of_thirds_less_the_noise_of_their_means():
    """ArviZ's, with chains as superchains, has the variance of two noisy means above 1."""
    draws = autoregressive(0.5, 60, 50) + np.linspace(0, 1, 50)
    thirds = np.concatenate([draws[:20].T, draws[-20:].T])
    theirs = arviz.rhat_nested(thirds, np.tile(np.arange(50), 2), method="identity")
    noise = np.var(draws[:20].mean(0) - draws[-20:].mean(0)) / 4 / draws.var(0).mean()
    assert nested_r_hat(draws) ** 2 == pytest.approx(float(theirs) ** 2 - noise, abs=0.03)


@pytest.mark.parametrize(("draws", "chains"), [(8, 200), (32, 16), (500, 4)])
def test_what_nested_r_hat_estimates(draws, chains):
    """Chains that are stuck at levels of variance v, and vary by 1, have 1 + v; drift adds."""
    random = np.random.default_rng(0)
    levels = np.sqrt(0.5) * np.linspace(-1, 1, chains) / np.linspace(-1, 1, chains).std(ddof=1)
    noise = random.normal(size=(200, draws, chains))
    for stuck, drift, expected in ((0, 0, 1), (1, 0, 1.5), (0, 2, 2.0), (1, 2, 2.5)):
        late = drift * (np.arange(draws) >= draws / 2)[:, None]
        squares = [nested_r_hat(one + stuck * levels + late) ** 2 for one in noise]
        within = 1 + (drift / 2) ** 2
        assert np.mean(squares) == pytest.approx(1 + (expected - 1) / within, abs=0.12)


@pytest.mark.parametrize(("draws", "chains"), [(8, 200), (32, 16), (500, 4), (20, 2)])
def test_the_limit_is_hardly_ever_reached_by_chance(draws, chains):
    """By 1 in 460 independent quantities at most, without what chains may remember."""
    random = np.random.default_rng(1)
    found = [nested_r_hat(random.normal(size=(draws, chains))) for _ in range(1000)]
    by_chance = np.sqrt(1 + r_hat_limit(draws, chains) ** 2 - 1.05**2)
    assert np.mean(np.array(found) > by_chance) <= 3 / 460
    assert r_hat_limit(draws, chains) < r_hat_limit(draws, chains, groups=10)
    assert r_hat_limit(10**6, chains) == pytest.approx(1.05, abs=1e-4)


# Five standard deviations, over 200 seeds, of each number relative to theory: no false alarm in
# 10^6. Independent draws: the largest R-hat was 1.004.
@pytest.mark.parametrize(
    ("correlation", "deviation", "by_lag"),
    [(0.0, 0.05, 0.016), (0.5, 0.09, 0.021), (0.8, 0.13, 0.029)],
)
def test_an_autoregressive_chain_has_the_time_that_theory_says(correlation, deviation, by_lag):
    draws = autoregressive(correlation, 1000, 4)
    expected = (1 + correlation) / (1 - correlation)
    lags = autocorrelation([draws])
    assert lags[:6] == pytest.approx(correlation ** np.arange(6), abs=5 * by_lag)
    found, sizes = correlation_of(lags, draws.size), convergence(draws)
    assert found.time == pytest.approx(expected, rel=5 * deviation)
    assert not found.at_least
    assert sizes.ess_bulk == pytest.approx(4000 / expected, rel=5 * deviation)
    if not correlation:
        assert sizes.r_hat < 1.01
        assert sizes.ess_tail == pytest.approx(4000, rel=0.2)
        assert sizes.mcse == pytest.approx(4000**-0.5, rel=0.12)


def test_chains_of_another_level_or_width_do_not_agree():
    draws = autoregressive(0.0, 200, 2) + np.array([0, 20])
    found, lags = convergence(draws), correlation_of(autocorrelation([draws]), draws.size)
    assert 1.8 < found.r_hat < 5  # of ranks, so that further apart makes it no worse
    assert found.ess_bulk < 10
    assert (lags.at_least, lags.time > 90) == (True, True)
    wide = autoregressive(0.0, 60, 4) * np.array([1, 1, 1, 9])
    assert nested_r_hat(wide) < 1.05 < 1.3 < convergence(wide).r_hat
    alone = convergence(autoregressive(0.3, 60, 1))
    assert alone.r_hat is alone.r_hat_limit is None
    assert alone.ess_bulk > 10


@pytest.mark.parametrize(
    "draws",
    [
        np.full((50, 4), -3.0),
        np.full((50, 4), [1.0, 2.0, 3.0, 4.0]),
        np.repeat([[1.0, 5.0], [2.0, 6.0]], 25, axis=0),
        np.zeros((50, 1)),
        -300 + 1e-5 * autoregressive(0.0, 50, 4),
        *(autoregressive(0.0, 7, 4)[:count] for count in (0, 1, 7)),
    ],
    ids=["equal", "own", "one step between the halves", "zero", "rounding", "0", "1", "7"],
)
def test_nothing_is_claimed_of_chains_that_do_not_move_or_are_short(draws):
    assert replace(convergence(draws), mean=None) == Convergence()
    assert len(draws) < 8 or is_constant(draws)


@pytest.mark.parametrize(
    ("keep", "deviation", "by_lag"), [(0.0, 0.02, 0.007), (0.5, 0.04, 0.01), (0.8, 0.06, 0.014)]
)
def test_tokens_that_are_drawn_anew_now_and_then_have_a_known_time(keep, deviation, by_lag):
    tokens = sticky(keep, 500, 4, 3, 5)
    found = of_tokens(tokens)
    assert found.autocorrelation[:5] == pytest.approx(keep ** np.arange(5), abs=5 * by_lag)
    assert found.time == pytest.approx((1 + keep) / (1 - keep), rel=5 * deviation)
    assert not found.at_least
    # What never varies weighs nothing.
    frozen = np.full((500, 4, 1), 7, dtype=np.int32)
    assert of_tokens(np.concatenate([frozen, tokens], axis=2)) == found
    assert of_tokens(frozen).time is None


def test_agreement_is_counted_as_one_would_by_hand():
    tokens = sticky(0.6, 24, 3, 2, 3, seed=1)
    tokens[:, :, 1] *= 70_000  # ids may be large
    excess, variation = np.zeros(12), 0.0
    for place in range(2):
        column = tokens[:, :, place]
        pooled = column.flatten().tolist()
        chance = sum(a == b for a in pooled for b in pooled) / len(pooled) ** 2
        variation += 1 - chance
        excess += [(column[: 24 - lag] == column[lag:]).mean() - chance for lag in range(12)]
    assert of_tokens(tokens).autocorrelation == pytest.approx((excess / variation).tolist())


def test_chains_stuck_at_different_tokens_never_forget_and_groups_have_their_own_marginals():
    tokens = np.broadcast_to(np.arange(4, dtype=np.int32)[:, None], (60, 4, 2))
    found = of_tokens(tokens)
    assert found.autocorrelation == pytest.approx([1.0] * 30)
    assert (found.time, found.at_least) == (pytest.approx(-1 + 2 * 30), True)  # as was looked
    one, two = sticky(0.0, 300, 4, 2, 3), 10 + sticky(0.0, 300, 4, 2, 3, seed=1)
    tokens = np.concatenate([one, two], axis=1)
    apart = [Group(0, 4, np.arange(4)), Group(0, 5, np.arange(4, 8))]
    assert of_tokens(tokens, *apart).time == pytest.approx(1, abs=0.2)
    # Pooled blindly they agree in 1/6 instead of 1/3, and what is left looks like memory.
    expected = (1 / 3 - 1 / 6) / (1 - 1 / 6)
    assert of_tokens(tokens).autocorrelation[10] == pytest.approx(expected, abs=0.05)
    assert of_tokens(tokens[:7], *apart).time is None


CHAINS, EPOCHS = 8, 600
MODES = np.array([0, 1, 1, 0, 1, 0, 1, 0])


def statistics_of(tokens, *rest):
    """Return the statistics of sequences of one length."""
    return token_statistics(tokens, np.full(tokens.shape[:2], tokens.shape[2]), *rest)


def one_group(chains: int) -> list[Group]:
    return [Group(0, None, np.arange(chains))]


def test_two_symmetric_modes_are_not_convergence():
    """Chains in distinct modes have the same energies; the share of a token tells them apart."""
    tokens = np.empty((EPOCHS, CHAINS, 5), dtype=np.int32)
    tokens[:] = MODES[:, None]
    tokens[:, :, 0] = sticky(0.1, EPOCHS, CHAINS, 1, 3)[:, :, 0]
    values = traces(autoregressive(0.0, EPOCHS, CHAINS))
    assert diagnose(manifest(EPOCHS, CHAINS), values).verdict.state == "converged"
    values |= {"tokens": tokens, "rejected": np.zeros_like(tokens, dtype=np.bool_)}
    found = diagnose(manifest(EPOCHS, CHAINS), values, names=lambda: {0: "red", 1: "blue"})
    assert found.energies["E_raw"].r_hat < 1.01
    assert str(found.verdict).startswith("not converged: nested R-hat ")
    assert found.verdict.times_longer is None
    assert "--epochs" not in found.verdict.advice
    names = [one.name for one in found.tokens.statistics]
    assert {"the share of 'red'", "the share of 'blue'"} <= set(names)
    stuck = next(one for one in found.tokens.statistics if "at position 2" in one.name)
    assert (stuck.r_hat, stuck.ess) == (math.inf, CHAINS)
    # Once all chains are in one mode there is nothing left to disagree on.
    tokens[:, :, 1:] = 0
    assert diagnose(manifest(EPOCHS, CHAINS), values).verdict.state == "converged"


def test_the_numbers_are_those_of_arviz():
    tokens = sticky(0.7, 200, 4, 3, 2)
    found = statistics_of(tokens, one_group(4), lambda: {0: "a"})
    share = next(one for one in found if one.name == "the share of 'a'")
    chains = (tokens == 0).mean(2).T
    assert share.r_hat == nested_r_hat(chains.T)
    assert share.ess == pytest.approx(float(array_stats.ess(chains, method="mean")))
    assert share.mean == pytest.approx(chains.mean())
    assert [one.ess for one in found] == sorted(one.ess for one in found)
    assert any(one.name == "token 1 at position 3" for one in found)


def test_templates_are_not_compared_with_each_other():
    lines = Inputs(templates=("a", "b"))
    tokens = np.concatenate(
        [sticky(0.1, 400, 4, 5, 2), 2 + sticky(0.1, 400, 4, 5, 2, seed=1)], axis=1
    )
    values = traces(autoregressive(0.0, 400, 8))
    values |= {"tokens": tokens, "rejected": np.ones_like(tokens, dtype=np.bool_)}
    found = diagnose(manifest(400, 8, inputs=lines, chains_each=4), values)
    assert found.verdict.state == "converged"
    assert any(one.name.endswith("of input 2") for one in found.tokens.statistics)
    in_all = {one.name for one in found.tokens.statistics if one.chains == 8}
    assert in_all == {"the choice of tokens"}
    pooled = diagnose(manifest(400, 8), values)
    assert pooled.verdict.state == "not converged"


def test_shares_are_of_the_tokens_inside_a_sequence():
    """Padding is no token, whatever it holds, and a longer sequence has no larger share."""
    random = np.random.default_rng(0)
    tokens = sticky(0.1, 400, 4, 8, 2)
    lengths = random.integers(3, 9, size=(400, 4))
    values = traces(autoregressive(0.0, 400, 4)) | {"lengths": lengths, "tokens": tokens}
    values["rejected"] = np.ones_like(tokens, dtype=np.bool_)
    about = manifest(400, 4, inputs=Inputs(length=(3, 8), sampled=True), width=8, shortest=3)
    clean = diagnose(about, values)
    assert clean.groups == 1  # chains that change their length share a target
    assert clean.verdict.state == "converged"
    beyond = np.arange(8) >= lengths[:, :, None]
    tokens[beyond] = 7
    assert diagnose(about, values).tokens.statistics == clean.tokens.statistics
    inside = (tokens == 0).sum(2) / lengths
    share = next(one for one in clean.tokens.statistics if one.name == "the share of token 0")
    assert share.mean == pytest.approx(inside.mean())
    # Lengths that never change are known from the trace of any other run, too.
    fixed = values | {"lengths": np.broadcast_to([3, 3, 8, 8], (400, 4)), "steps": 0 * lengths + 9}
    assert not any("unknown" in note for note in diagnose(about, values).notes)
    # Chains that may change theirs and never did must still agree with each other.
    assert diagnose(about, fixed).groups == 1
    about = manifest(400, 4, inputs=Inputs(length=(3, 8)), width=8, shortest=3)
    found = diagnose(about, fixed)
    assert found.groups == 2
    assert any(one.name.endswith("of length 8") for one in found.tokens.statistics)
