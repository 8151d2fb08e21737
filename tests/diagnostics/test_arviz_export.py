"""A run as ArviZ's own object: nothing lost, nothing mixed up, burn-in only where asked for."""

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats

import maskov
from maskov import Gibbs, Metropolis, Raw, Schedule
from small import tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32)
SCHEDULE = Schedule(epochs=14, burn_in=6)


@pytest.fixture(scope="module")
def run():
    return maskov.sample(MODEL, Metropolis(Raw()), SCHEDULE, chains=5, length=(3, 7))


def test_every_value_comes_back(run):
    tree, traces = run.to_arviz(), run.traces
    assert set(tree.children) == {"posterior", "sample_stats", "constant_data"}
    posterior, stats = tree["posterior"], tree["sample_stats"]
    assert dict(posterior.sizes) == {"chain": 5, "draw": 8, "position": 7}
    for name, group, source in [
        ("energy_raw", posterior, "energy_raw"),
        ("energy_norm", posterior, "energy_norm"),
        ("energy", stats, "energy_target"),
        ("passes", stats, "passes"),
    ]:
        assert group[name].dims == ("chain", "draw")
        for chain in range(5):
            assert (group[name].sel(chain=chain).values == traces[source][6:, chain]).all()
    for name, source in [("acceptance_rate", "accepted"), ("novel_rate", "novel")]:
        rate = stats[name].transpose("draw", "chain").values
        assert (rate == traces[source][6:] / traces["steps"][6:]).all()
    assert tree.attrs["signature"] == posterior.attrs["signature"] == run.signature
    assert posterior.attrs["inference_library"] == "maskov"
    assert tree.attrs["leaves_invariant"] == 1


def test_tokens_end_where_their_chain_does(run):
    tree = run.to_arviz()
    tokens = tree["posterior"]["tokens"]
    assert tokens.dims == ("chain", "draw", "position")
    last = {one.chain: one.ids for one in run.samples}
    assert len({len(ids) for ids in last.values()}) > 1
    for chain, ids in last.items():
        assert tokens[chain, -1].values.tolist() == ids + [-1] * (7 - len(ids))
        assert tree["constant_data"]["length"].sel(chain=chain) == len(ids)


def test_burn_in_is_kept_apart(run):
    tree = run.to_arviz(warmup=True)
    warm = tree["warmup_posterior"]["energy_norm"]
    assert warm.shape == (5, 6)
    assert (run.traces["energy_norm"][:6] == warm.values.T).all()
    assert tree["warmup_sample_stats"]["passes"].shape == (5, 6)
    assert tree["posterior"]["energy_norm"].shape == (5, 8)


def test_arviz_finds_what_we_find():
    schedule = Schedule(epochs=30, burn_in=6)
    run = maskov.sample(MODEL, Metropolis(Raw()), schedule, chains=4, length=3)
    energy = run.to_arviz()["posterior"]["energy_raw"]
    found = run.diagnose().energies["E_raw"]
    axes = {"chain_axis": energy.dims.index("chain"), "draw_axis": energy.dims.index("draw")}
    assert found.ess_bulk == pytest.approx(float(array_stats.ess(energy.values, **axes)))


def test_kernels_without_an_energy_have_none_and_more_chains_than_draws_are_no_mistake():
    tree = maskov.sample(MODEL, Gibbs(), Schedule(epochs=2), chains=9, length=4).to_arviz()
    assert "energy" not in tree["sample_stats"]
    assert tree["posterior"]["energy_raw"].shape == (9, 2)
    assert tree.attrs["leaves_invariant"] == 0


def test_templates_are_named(run):
    texts = ["red [MASK] [MASK]", "[MASK] green"]
    tree = maskov.sample(MODEL, Gibbs(), Schedule(epochs=2), templates=texts, chains=2).to_arviz()
    assert tree["constant_data"]["template"].values.tolist() == [0, 0, 1, 1]
    assert tree["constant_data"]["length"].values.tolist() == [3, 3, 2, 2]
    assert np.isin(tree["posterior"]["tokens"].values, -1).sum() == 2 * 2
