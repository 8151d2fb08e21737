"""Runs with energies of groups and with a burn-in of another energy: what they trace and name."""

import json

import numpy as np
import pytest
import torch

import maskov
from engines import sample as sample_by
from maskov import (
    Gibbs,
    InputError,
    LinearSchedule,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    RunError,
    Schedule,
    Site,
    Span,
    Sweep,
)
from maskov.cli import main
from maskov.energies.counting import Length
from maskov.errors import Interrupted
from maskov.execution.loop import kernel_at
from maskov.kernels.base import BurnIn
from maskov.runs.state import GroupState, pack, unpack
from maskov.ui.report import build, to_html, to_json, to_markdown
from small import random_state, random_table, tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32)
GROUPED = "raw(groups=2)"


@pytest.mark.parametrize(
    ("schedule", "lock_step", "resident"),
    [
        (Schedule(2, 1, burn_in_energy=GROUPED), False, 3),
        (Schedule(2), False, 5),
        (Schedule(2), True, 3),
    ],
    ids=str,
)
def test_groups_have_the_size_of_chains_in_lock_step_where_burn_in_has_it(
    schedule, lock_step, resident, monkeypatch
):
    sizes = {True: 3, False: 5}
    monkeypatch.setattr(
        "maskov.models.scorer.Scorer.resident",
        lambda self, length, mean, lock_step: sizes[lock_step],
    )
    kernel = Metropolis(Raw())
    run = sample_by(MODEL, kernel, schedule, chains=2, length=3, lock_step=lock_step)
    assert run.manifest.config.execution.resident == resident


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


def test_a_run_that_ends_when_converged_knows_the_energies_of_its_samples():
    kernel = Metropolis(Norm(groups=2))
    schedule = Schedule(2000, 2, burn_in_energy="raw(groups=1)")
    run = maskov.sample(
        random_table(scale=0.3), kernel, schedule, chains=6, length=3, until="converged"
    )
    assert run.manifest.stopped_at is not None
    assert run.samples
    assert all(np.isfinite([one.energy_raw, one.energy_norm]).all() for one in run.samples)


def test_names_in_manifest_and_signature(tmp_path):
    schedule = Schedule(3, 1, burn_in_energy="norm(groups=3)")
    maskov.sample(
        MODEL, Metropolis(Raw(groups=2)), schedule, chains=2, length=4, out=tmp_path / "run"
    )
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["energy"] == manifest["config"]["kernel"]["energy"] == GROUPED
    assert manifest["config"]["kernel"]["delayed"]["nearest"] == []
    assert manifest["config"]["schedule"]["burn_in_energy"] == "norm(groups=3)"
    assert "|energy:raw(groups=2)|" in manifest["signature"]
    assert "|burn-in:norm(groups=3)|" in manifest["signature"]
    assert manifest["leaves_invariant"]
    plain = maskov.sample(MODEL, schedule=Schedule(1), chains=1, length=4).manifest
    assert "burn-in:" not in plain.signature


def test_kernels_of_each_epoch():
    kernel = Mixture((Metropolis(Raw()), Metropolis(Raw(), Span())))
    schedule = Schedule(4, 2, burn_in_energy=GROUPED)
    running = BurnIn(kernel, Raw(groups=2), 2)
    found = [str(kernel_at(running, schedule, epoch).energy) for epoch in range(4)]
    assert found == [GROUPED, GROUPED, "raw", "raw"]
    assert {str(part.energy) for part in kernel.with_energy(Norm()).kernels} == {"norm"}


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
    """Their energies, their passes, and which positions these mask."""
    scorer = maskov.models.scorer.Scorer(MODEL)
    chains = Metropolis(energy).init(random_state(MODEL, 3, 5), scorer)
    loaded = unpack(pack(GroupState.fresh(chains, 100))).chains
    assert torch.equal(loaded.energy, chains.energy)
    assert torch.equal(loaded.part_values.values, chains.part_values.values)
    assert loaded.pass_cache.groups == energy.groups
    assert torch.equal(loaded.pass_cache.hidden, chains.pass_cache.hidden)


@pytest.mark.parametrize(
    ("kernel", "schedule", "said"),
    [
        (Gibbs(), {"burn_in": 1, "burn_in_energy": "raw"}, "cannot take another energy"),
        (Metropolis(Raw()), {"burn_in_energy": "raw"}, "give --burn-in, too"),
        (Metropolis(Raw()), {"burn_in": 1, "burn_in_energy": "heat"}, "unknown energy 'heat'"),
    ],
)
def test_what_cannot_be_is_refused(kernel, schedule, said):
    with pytest.raises(InputError, match=said):
        maskov.sample(MODEL, kernel, Schedule(3, **schedule), chains=1, length=4)


def test_parts_of_ones_own_in_burn_in_are_trusted_by_name(tmp_path, monkeypatch):
    (tmp_path / "burning.py").write_text("def letters(texts):\n    return [0.1] * len(texts)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    schedule, looks = Schedule(4, 2, burn_in_energy="raw+burning:letters"), iter(range(10**6))
    with pytest.raises(Interrupted):
        maskov.sample(
            MODEL, schedule=schedule, chains=2, length=6, out=tmp_path / "run",
            stop=lambda: next(looks) > 7,
        )  # fmt: skip
    with pytest.raises(RunError, match="--trust-parts"):
        maskov.resume(tmp_path / "run", MODEL)
    assert maskov.resume(tmp_path / "run", MODEL, trust_parts=True).finished


def called(*words):
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def test_on_the_command_line(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ("sample", "--model", "untrained", "--chains", 2, "--epochs", 3, "--length", 5)
    burn_in = ("--burn-in", 1, "--burn-in-energy", "raw(groups=3)")
    assert called(*words, "--energy", "norm(groups=2)", *burn_in, "--out", folder) == 0
    manifest = maskov.Run.open(folder).manifest
    assert manifest.energy == "norm(groups=2)"
    assert manifest.schedule.burn_in_energy == "raw(groups=3)"
    first, *_, last = [line for line in capsys.readouterr().err.splitlines() if "epoch " in line]
    assert "E_target" in first
    assert "E_raw" not in first
    assert "E_raw" in last
    assert called("diagnose", folder) == 0
    assert called(*words, "--burn-in", 0, "--burn-in-energy", "raw") == 2
    assert "give --burn-in" in capsys.readouterr().err


def test_groups_do_not_change_with_the_length():
    """The same first tokens have the same groups in a longer sequence."""
    schedule = Schedule(epochs=1)
    run = maskov.sample(MODEL, Metropolis(Norm(groups=3)), schedule, chains=6, length=(3, 9))
    for sample, traced in zip(run.samples, run.traces["energy_target"][0], strict=True):
        (alone,) = maskov.score(MODEL, [sample.text], Norm(groups=3))
        assert traced == pytest.approx(alone.energy, abs=1e-4)


def test_lock_step_makes_the_same_chains():
    """The same signature means the same chains, and early tests are a part of it."""
    settings = {"schedule": Schedule(4), "chains": 5, "length": (3, 7), "seed": 2}
    plain = sample_by(MODEL, Metropolis(Raw()), lock_step=True, **settings)
    flown = maskov.sample(MODEL, Metropolis(Raw()), **settings)
    once = maskov.sample(MODEL, Metropolis(Raw(), delayed=maskov.DelayedAcceptance(0)), **settings)
    assert plain.signature == flown.signature != once.signature
    assert [one.ids for one in plain.samples] == [one.ids for one in flown.samples]
    blocks = Schedule(epochs=8, block=LinearSchedule(2.0, 1.0, 1.0))
    assert "delayed:2" in maskov.sample(MODEL, schedule=blocks, chains=1, length=6).signature
