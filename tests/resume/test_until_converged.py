"""Runs that end when they have converged: where they end, what they keep, and the same bytes."""

import json
import shutil

import numpy as np
import pytest
import torch

import maskov
from json_files import edited
from maskov import Metropolis, Raw, Schedule
from maskov.cli import main
from maskov.config import UntilConverged
from maskov.diagnostics import diagnose
from maskov.models import TabularModel
from maskov.replay import Replayer
from odd_workers import files
from small import on_untrained, random_table
from stopped_runs import Stopper, cut

TABLE = random_table(length=2, scale=0.1)
# More than the 320 draws of the first check, so that there is a check that fails.
SETTINGS = {"energy": "raw", "length": 2, "chains": 16, "until": "converged:340", "seed": 1}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A run that was never interrupted, and how often it asked whether to stop."""
    folder, stop = tmp_path_factory.mktemp("whole") / "run", Stopper()
    return maskov.sample(TABLE, out=folder, resident=8, stop=stop, **SETTINGS), stop.asked


@pytest.fixture(scope="module")
def whole(counted):
    return counted[0]


def manifest_of(folder) -> dict:
    found = json.loads((folder / "manifest.json").read_text())
    return {name: value for name, value in found.items() if name != "created"}


def test_checks_grow_and_end_at_the_limit():
    rule = UntilConverged()
    assert rule.checks(Schedule(epochs=200), 0) == (40, 56, 80, 112, 158, 200)
    assert rule.checks(Schedule(epochs=100, burn_in=30), 0) == (50, 58, 70, 86, 100)
    assert rule.checks(Schedule(epochs=100, burn_in=30), 50) == (80, 100)
    assert rule.checks(Schedule(epochs=7), 0) == (7,)


def test_a_run_ends_at_the_first_check_that_it_passes(whole):
    manifest, traces = whole.manifest, whole.traces
    end = manifest.stopped_at
    assert 40 < end < 2000
    assert all(len(trace) == end for trace in traces.values())
    assert (traces["steps"] > 0).all()
    assert [one.epoch for one in whole.samples] == [end - 1] * 16
    assert whole.finished
    for check in manifest.checks[: manifest.checks.index(end) + 1]:
        cut = {name: trace[:check] for name, trace in traces.items()}
        found = diagnose(manifest, cut)
        assert found.epochs == check - check // 2  # the first half does not count
        assert (found.verdict.state == "converged") == (check == end)
    found = whole.diagnose()
    assert found.verdict.state == "converged"
    numbers = [one.ess_bulk for one in found.energies.values()]
    assert min(numbers + [one.ess for one in found.tokens.statistics]) >= 340
    assert whole.summary().burn_in == end // 2
    assert whole.summary().epochs == whole.summary().epochs_done == end
    decided, stopped = whole.summary().notes
    assert "decided by its own diagnostics" in decided
    assert f"stopped at epoch {end}" in stopped
    assert "|until:converged,effective=340|" in whole.signature


def test_whoever_reads_the_folder_sees_the_epochs_that_were_run(whole):
    opened = maskov.Run.open(whole.store.path)
    end = opened.manifest.stopped_at
    assert opened.finished
    assert maskov.resume(whole.store.path, TABLE).manifest.stopped_at == end
    assert opened.to_arviz()["posterior"].sizes["draw"] == end - end // 2
    assert Replayer(opened, TABLE).epochs == end
    report = maskov.ui.report.build([opened])["runs"][0]
    told = [report[name] for name in ("finished", "epochs_done", "burn_in")]
    assert told == [True, end, end // 2]
    assert f"stopped at epoch {end} of at most 2,000" in report["metadata"]["schedule"]


def test_the_same_chains_as_a_run_of_so_many_epochs(whole):
    end = whole.manifest.stopped_at
    settings = {name: SETTINGS[name] for name in ("length", "chains", "seed")}
    fixed = maskov.sample(TABLE, schedule=Schedule(epochs=end), **settings)
    assert (fixed.traces["tokens"] == whole.traces["tokens"]).all()


def test_a_damaged_trace_of_a_run_that_ended_early_is_made_again(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole.store.path, copy)
    traces = np.load(copy / "traces.npy")
    traces["energy_raw"][3, 4] += 1
    np.save(copy / "traces.npy", traces)
    assert "`maskov resume" in maskov.Run.open(copy).diagnose().notes[0]
    run = maskov.resume(copy, TABLE)
    assert "traces.npy" in run.recovered[0]
    assert "(1 epoch, from epoch 4 on) do not fit the run" in run.recovered[0]
    assert files(copy) == files(whole.store.path)
    assert manifest_of(copy) == manifest_of(whole.store.path)


@pytest.mark.parametrize(
    ("share", "noted"),
    [(0.4, False), *(pytest.param(*row, marks=pytest.mark.slow) for row in
                     ((0.02, False), (0.9, False), (0.98, False), (0.1, True), (0.8, True)))],
)  # fmt: skip
def test_stopped_on_the_way_and_resumed_it_ends_at_the_same_epoch(counted, share, noted, tmp_path):
    """Also if the end was `noted`, and power was lost before the checkpoint was saved."""
    (whole, looks), folder = counted, tmp_path / "run"
    cut(folder, int(share * looks), TABLE, resident=8, **SETTINGS)
    if noted:
        with edited(folder / "manifest.json") as found:
            found["stopped_at"] = whole.manifest.stopped_at
        assert not maskov.Run.open(folder).finished
    maskov.resume(folder, TABLE)
    assert files(folder) == files(whole.store.path)
    assert manifest_of(folder) == manifest_of(whole.store.path)


def test_chains_that_never_meet_run_to_the_limit():
    scores = 20 * torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    noise = 0.5 * torch.eye(2, dtype=torch.float64)
    model = TabularModel(scores + noise, "ab")
    texts = ["a a", "b b"]
    run = maskov.sample(
        model, Metropolis(Raw()), Schedule(epochs=90), texts=texts, chains=2, until="converged"
    )
    assert run.manifest.stopped_at is None
    assert run.manifest.epochs == len(run.traces["steps"]) == 90
    assert [one.epoch for one in run.samples] == [89] * 4
    assert run.finished
    assert run.summary().notes[-1] == (
        "the limit of 90 epochs was reached before the chains had converged"
    )


def test_samples_are_kept_after_the_burn_in_that_was_given():
    run = maskov.sample(TABLE, schedule=Schedule(epochs=500, burn_in=15), thin=10, **SETTINGS)
    end = run.manifest.stopped_at
    assert end in run.manifest.checks[:-1]
    assert sorted({one.epoch for one in run.samples}) == list(range(24, end, 10))
    assert run.summary().burn_in == 15


def test_the_command_says_what_it_does(tmp_path, capfd):
    words = "sample --until converged:5 --epochs 41 --length 2 --chains 4 --burn-in 20"
    with pytest.raises(SystemExit) as ended:
        main(on_untrained([*words.split(), "--out", str(tmp_path / "run")]))
    assert not ended.value.code
    said = capfd.readouterr().err
    assert "note: the run ends when it has converged, after at most 41 epochs" in said
    assert "note: epoch 40: " in said
    assert maskov.Run.open(tmp_path / "run").manifest.config.until == UntilConverged(5)
