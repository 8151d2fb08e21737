"""Token statistics: chains that agree on energies alone have not converged."""

import math

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from made_up_runs import autoregressive, manifest, sticky, traces

import maskov
from maskov import Metropolis, Raw, Schedule
from maskov.config import Inputs
from maskov.diagnostics import diagnose
from maskov.diagnostics.chains import Group
from maskov.diagnostics.convergence import nested_r_hat
from maskov.diagnostics.tokens import token_statistics
from maskov.models import TabularModel

CHAINS, EPOCHS = 8, 600
MODES = np.array([0, 1, 1, 0, 1, 0, 1, 0])


def statistics_of(tokens, *rest):
    """Return the statistics of sequences of one length."""
    return token_statistics(tokens, np.full(tokens.shape[:2], tokens.shape[2]), *rest)


def one_group(chains: int) -> list[Group]:
    return [Group(0, None, np.arange(chains))]


def two_modes(length: int = 3, depth: float = 12.0) -> TabularModel:
    """Return conditionals by which a and b keep together, and c and d.

    The classes may be exchanged in every score, so both modes have the same energies.
    """
    generator = torch.Generator().manual_seed(0)
    within = 0.3 * torch.randn((length, *(2,) * length), generator=generator, dtype=torch.float64)
    states = torch.cartesian_prod(*[torch.arange(4)] * length)
    scores = []
    for place in range(length):
        together = (states // 2 == states[:, place, None] // 2).double().mean(1)
        scores.append(depth * together + within[(place, *(states % 2).T)])
    return TabularModel(torch.stack(scores).reshape(length, *(4,) * length), "abcd")


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


@pytest.mark.slow
def test_two_symmetric_modes_of_a_real_chain():
    """Half of the chains begin in either mode and none crosses: energies agree, tokens do not."""
    texts = [" ".join("ac"[mode] * 3) for mode in MODES]
    run = maskov.sample(
        two_modes(), Metropolis(Raw()), Schedule(epochs=200, burn_in=20), texts=texts, chains=1
    )
    found = run.diagnose()
    assert all(one.r_hat < 1.03 and one.ess_bulk > 400 for one in found.energies.values())
    assert found.verdict.state == "not converged"
    first = np.isin(run.traces["tokens"][20:], [0, 1]).mean((0, 2))
    assert first.tolist() == (1.0 - MODES).tolist()


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


def test_there_are_never_more_than_seventeen_and_frozen_words_are_not_among_them():
    tokens = sticky(0.2, 60, 4, 30, 10)
    tokens[:, :, :20] = 99  # frozen: the most common token by far
    found = statistics_of(tokens, one_group(4))
    assert len(found) == 17
    assert not any("99" in one.name for one in found)
    assert statistics_of(tokens[:7], one_group(4)) == []
    assert statistics_of(tokens[:, :, :20], one_group(4)) == []


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


def test_a_slow_template_is_not_hidden_by_a_fast_one():
    fast, slow = sticky(0.0, 400, 4, 5, 2), sticky(0.97, 400, 4, 5, 2, seed=1)
    groups = [Group(0, 5, np.arange(4)), Group(1, 5, np.arange(4, 8))]
    both = statistics_of(np.concatenate([fast, slow], axis=1), groups)
    alone = statistics_of(slow, one_group(4))
    name = "the share of token 0"
    pooled, own = (next(one for one in part if one.name == name) for part in (both, alone))
    assert (pooled.r_hat, pooled.ess) == (own.r_hat, pytest.approx(2 * own.ess))


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
