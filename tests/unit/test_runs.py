"""What a run keeps: samples, traces, summaries, and the same energies when scored again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import maskov
from maskov import Gibbs, Metropolis, Norm, Raw, Schedule
from maskov.models.scorer import Scorer
from maskov.runs.manifest import signature
from maskov.types import Sequences
from small import sample, tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32)


@pytest.mark.parametrize("kernel", [Metropolis(Raw()), Metropolis(Norm()), Gibbs()])
def test_scoring_the_stored_ids_gives_the_stored_energies(kernel, tmp_path):
    run = maskov.sample(
        MODEL, kernel, Schedule(epochs=3), chains=5, length=(3, 7), thin=1, out=tmp_path / "run"
    )
    assert len(run.samples) == 15
    for one in maskov.Run.open(tmp_path / "run").samples:
        tokens, length = torch.tensor([one.ids]), torch.tensor([len(one.ids)])
        given = Sequences(tokens, length, Scorer(MODEL).cache(Sequences(tokens, length)))
        assert one.energy_raw == pytest.approx(float(Raw()(MODEL, given)), abs=1e-4)
        assert one.energy_norm == pytest.approx(float(Norm()(MODEL, given)), abs=1e-4)
        assert one.tokens == MODEL.token_strings(one.ids)


def test_traces_hold_both_energies_and_consistent_counts():
    kernel = Metropolis(Norm(), delayed=maskov.DelayedAcceptance(0))
    run = maskov.sample(MODEL, kernel, Schedule(epochs=4), chains=5, length=(4, 8))
    traces = run.traces
    lengths = np.array([len(one.ids) for one in run.samples])
    assert all(values.shape[:2] == (4, 5) for values in traces.values())
    assert (traces["steps"] == lengths).all()
    assert (traces["novel"] <= traces["accepted"]).all()
    assert (traces["novel"] <= traces["proposed_novel"]).all()
    # A self-proposal is always accepted, a novel one only sometimes.
    selves = traces["steps"] - traces["proposed_novel"]
    assert (traces["accepted"] == selves + traces["novel"]).all()
    assert (traces["passes"] == traces["proposed_novel"] * (lengths - 1)).all()
    last = [one.energy_norm for one in run.samples]
    assert traces["energy_norm"][-1].tolist() == last
    assert np.allclose(traces["energy_target"][-1], last)
    assert np.isfinite(traces["energy_raw"]).all()


@pytest.mark.parametrize("lock_step", [True, False])
def test_traces_say_what_happened_at_each_position(lock_step, tmp_path):
    kernel, schedule = Metropolis(Raw()), Schedule(epochs=6, force_accept=1)
    run = sample(
        MODEL, kernel, schedule, chains=5, length=(4, 8), thin=1, resident=2,
        lock_step=lock_step, out=tmp_path / "run",
    )  # fmt: skip
    traces = maskov.Run.open(tmp_path / "run").traces
    assert traces["tokens"].shape == traces["rejected"].shape == (6, 5, 8)
    for one in run.samples:
        assert traces["tokens"][one.epoch, one.chain, : len(one.ids)].tolist() == one.ids
        assert not traces["rejected"][one.epoch, one.chain, len(one.ids) :].any()
    # A sweep visits each position once: what was turned down, and what became another token.
    turned = traces["steps"] - traces["accepted"]
    assert (traces["rejected"].sum(2) == turned).all()
    assert not traces["rejected"][0].any()
    assert turned[1:].sum() > 0
    moved = traces["tokens"][1:] != traces["tokens"][:-1]
    assert (moved.sum(2) == traces["novel"][1:]).all()
    assert not (moved & traces["rejected"][1:]).any()


def test_a_summary_counts_kept_epochs_and_has_errors_over_chains():
    schedule = Schedule(epochs=6, burn_in=2)
    run = maskov.sample(MODEL, Metropolis(Raw()), schedule, chains=7, length=5)
    summary, traces = run.summary(), run.traces
    assert summary.steps == 6 * 7 * 5
    assert summary.acceptance_rate == traces["accepted"][2:].sum() / (4 * 7 * 5)
    assert summary.novel_rate == traces["novel"][2:].sum() / (4 * 7 * 5)
    assert summary.passes_per_step == traces["passes"].sum() / summary.steps
    means = traces["energy_raw"][2:].mean(0)
    assert summary.energy_raw_mean == pytest.approx(means.mean())
    assert summary.energy_raw_standard_error == pytest.approx(means.std(ddof=1) / 7**0.5)
    assert summary.leaves_invariant


@pytest.mark.parametrize(
    ("name", "told"),
    [("/home/anna/models/mine", "mine"), ("org/name", "org/name"), ("wiki-small", "wiki-small")],
)
def test_the_signature_of_a_model_in_a_folder_says_nothing_of_the_machine(name, told):
    config = maskov.sample(MODEL, Gibbs(), Schedule(epochs=1), chains=1, length=4).manifest.config
    config = replace(config, model=replace(config.model, name=name))
    assert signature(config, Gibbs(), {}).startswith(f"model:{told}#")
