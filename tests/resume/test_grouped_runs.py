"""Runs with energies of groups and with a burn-in of another energy: what they trace and name."""

import json

import numpy as np
import pytest
import torch

import maskov
from maskov import Metropolis, Norm, Raw, Schedule, Site, Sweep
from maskov.energies.counting import Length
from maskov.runs.state import GroupState, pack, unpack
from maskov.ui.report import build, to_html, to_json, to_markdown
from small import random_state, random_table, tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32)
GROUPED = "raw(groups=2)"


def test_ordinary_energies_are_traced_only_where_samples_are_kept():
    energy = Raw(groups=2)
    run = maskov.sample(MODEL, Metropolis(energy), Schedule(6, 2), chains=3, length=6, thin=2)
    known = ~np.isnan(run.traces["energy_raw"]).any(1)
    assert known.tolist() == [False, False, False, True, False, True]
    assert not np.isnan(run.traces["energy_target"]).any()
    last = [sample for sample in run.samples if sample.epoch == 5]
    for sample, traced in zip(last, run.traces["energy_target"][5], strict=True):
        (raw,), (norm,), (target,) = (
            maskov.score(MODEL, [sample.text], one) for one in (Raw(), Norm(), energy)
        )
        assert sample.energy_raw == pytest.approx(raw.energy, abs=1e-4)
        assert sample.energy_norm == pytest.approx(norm.energy, abs=1e-4)
        assert traced == pytest.approx(target.energy, abs=1e-4)
    assert abs(traced - sample.energy_raw) > 1e-3
    report = build([run])
    (told,) = json.loads(to_json(report))["runs"]
    middle = told["energies"]["raw"]["spread"]["middle"]
    assert [value is not None for value in middle] == known.tolist()
    assert "raw(groups=2)" in to_html(report)
    assert "raw(groups=2)" in to_markdown(report)


def test_the_verdict_is_by_the_energy_that_was_traced():
    kernel = Metropolis(Raw(groups=2))
    run = maskov.sample(random_table(), kernel, Schedule(24), chains=3, length=3, thin=12)
    found = run.diagnose()
    assert found.energies["E_target"].draws == 24
    assert found.energies["E_raw"].draws == 2
    assert found.verdict.state not in ("too short to tell", "not judged")


def test_the_kept_epochs_have_the_energy_that_was_asked_for():
    schedule = Schedule(5, 2, burn_in_energy=GROUPED)
    kernel = Metropolis(Norm(), Site(positions=Sweep(block=2)))
    run = maskov.sample(MODEL, kernel, schedule, chains=4, length=6, thin=1)
    target = run.traces["energy_target"]
    assert np.allclose(target[2:], run.traces["energy_norm"][2:], atol=1e-4)
    assert np.isnan(run.traces["energy_norm"][:2]).all()
    assert not np.allclose(target[1], target[2], atol=1.0)


@pytest.mark.parametrize("energy", [2 * Raw() + Length(4) + Norm(), Raw(), Raw(groups=2)], ids=str)
def test_chains_are_the_same_after_a_checkpoint(energy):
    scorer = maskov.models.scorer.Scorer(MODEL)
    chains = Metropolis(energy).init(random_state(MODEL, 3, 5), scorer)
    loaded = unpack(pack(GroupState.fresh(chains, 100))).chains
    assert torch.equal(loaded.energy, chains.energy)
    assert torch.equal(loaded.part_values.values, chains.part_values.values)
    assert loaded.pass_cache.groups == energy.groups
    assert torch.equal(loaded.pass_cache.hidden, chains.pass_cache.hidden)
