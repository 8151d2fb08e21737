"""Runs at the edges: unfinished, tiny, huge, without traces of one kind or another."""

import json
from dataclasses import replace

import numpy as np
import pytest

import maskov
from maskov.config import Schedule
from maskov.kernels import Gibbs
from maskov.moves import LowestConfidence, MaskedConditional, Site
from maskov.runs import Run
from maskov.runs.store import Store
from maskov.ui.report import build, to_html, to_json, to_markdown
from maskov.ui.report.data import MOST_CHAINS, MOST_EPOCHS, MOST_SAMPLES
from report_runs import small_run
from small import random_table, tiny_bert


def every_format(*runs: Run) -> dict:
    """Make all three; return the numbers."""
    report = build(runs)
    assert "</html>" in to_html(report)
    assert to_markdown(report).startswith("# ")
    return json.loads(to_json(report))


def begun(run: Run, epochs: int) -> Run:
    """Return a run as it stood after so many epochs."""
    store = Store(run.manifest)
    for epoch in range(epochs):
        store.write_rows(0, epoch, {name: rows[epoch] for name, rows in run.traces.items()})
    return Run(store)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_unfinished_run_says_so(done):
    whole = small_run(schedule=Schedule(epochs=4, burn_in=1))
    (told,) = every_format(begun(whole, done))["runs"]
    assert not told["finished"]
    assert told["epochs"] == list(range(1, done + 1))
    assert told["samples"] == []
    assert any(f"not finished: {done} of 4" in note for note in told["notes"])
    assert "not finished</span>" in to_html(build([begun(whole, done)]))


@pytest.mark.parametrize(("chains", "epochs"), [(1, 1), (1, 25), (3, 1)])
def test_one_chain_and_one_epoch_will_do(chains, epochs):
    (told,) = every_format(small_run(chains, epochs))["runs"]
    assert len(told["energies"]["raw"]["chains"]) == chains
    errors = [number["standard_error"] for number in told["numbers"]]
    assert [error is None for error in errors] == [chains == 1] * 4 + [True]


def test_energies_that_were_traced_where_kept_only():
    gibbs = Gibbs()
    run = maskov.sample(
        tiny_bert(), gibbs, Schedule(epochs=6), chains=3, length=4, thin=3, trace="kept"
    )
    (told,) = every_format(run)["runs"]
    known = [value is not None for value in told["energies"]["raw"]["spread"]["middle"]]
    assert known == [False, False, True] * 2


def test_mask_predict_and_runs_without_traces_of_positions(monkeypatch):
    kernel = Gibbs(Site(MaskedConditional(), LowestConfidence(3)))
    run = maskov.sample(tiny_bert(), kernel, Schedule(epochs=3), chains=2, length=4)
    assert every_format(run)["runs"][0]["positions"] is None
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", 1)
    plain = small_run(chains=2, epochs=25)
    (told,) = every_format(plain)["runs"]
    assert told["positions"] is None
    assert told["correlations"]


def test_templates_have_positions_too():
    run = maskov.sample(
        tiny_bert(), schedule=Schedule(epochs=8), templates=["red [MASK] blue [MASK]"], chains=3
    )
    every_format(run)


def drawn(chains: int, epochs: int) -> Run:
    """Return a run of random numbers, as large as asked and without traces of positions."""
    manifest = small_run().manifest
    schedule = replace(manifest.schedule, epochs=epochs)
    config = replace(manifest.config, chains=chains, schedule=schedule)
    store = Store(replace(manifest, config=config, width=2**24 // (chains * epochs) + 1))
    draws = np.random.default_rng(0)
    for trace in store.traces().values():
        trace[:] = draws.integers(1, 9, trace.shape)
    store.traces()["lengths"][:] = 3
    return Run(store)


def test_huge_runs_are_capped_and_say_so():
    run = drawn(chains=100_000, epochs=6)
    run.store.write_samples(small_run().samples * 1000)
    report = build([run])
    (told,) = report["runs"]
    assert len(told["shown_chains"]) == MOST_CHAINS
    assert len(told["samples"]) == MOST_SAMPLES
    assert told["samples_in_all"] == 3000
    assert any("40 of 100,000 chains" in note for note in told["notes"])
    assert "1,000 of 3,000 samples" in told["notes"][-1]
    assert len(to_html(report)) < 2_000_000


def test_long_runs_are_thinned_and_say_so():
    run = drawn(chains=2, epochs=MOST_EPOCHS + 100)
    (told,) = build([run])["runs"]
    assert len(told["epochs"]) == MOST_EPOCHS
    assert told["epochs"][-1] == MOST_EPOCHS + 100
    at = told["epochs"][77] - 1
    assert told["energies"]["raw"]["chains"][1][77] == run.traces["energy_raw"][at, 1]
    assert any(f"{MOST_EPOCHS} of {MOST_EPOCHS + 100} epochs" in note for note in told["notes"])


def test_runs_of_one_name_have_labels_of_their_own(tmp_path):
    model, schedule = random_table(), Schedule(epochs=1)
    for name in ("a/run", "b/run"):
        maskov.sample(model, schedule=schedule, chains=1, length=3, out=tmp_path / name)
    paths = [tmp_path / name for name in ("a/run", "b/run", "a/run")]
    first, second, again = map(Run.open, paths)
    assert [one["label"] for one in build([first])["runs"]] == ["run"]
    assert [one["label"] for one in build([first, second])["runs"]] == ["a/run", "b/run"]
    labels = [one["label"] for one in build([first, second, again])["runs"]]
    assert labels == ["run (1)", "run (2)", "run (3)"]
    assert [one["label"] for one in build([small_run(), small_run()])["runs"]] == [
        "mh-raw (1)", "mh-raw (2)",
    ]  # fmt: skip


def test_an_infinite_energy_is_no_number_and_breaks_nothing():
    """Of a sequence of probability zero; warnings are errors here."""
    run = small_run(3, 30)
    run.traces["energy_norm"][5, 1] = np.inf
    (told,) = every_format(run)["runs"]
    numbers = {number["name"]: number for number in told["numbers"]}
    assert numbers["E_norm"]["value"] is None
    assert numbers["E_norm"]["standard_error"] is None
    assert numbers["E_raw"]["standard_error"] > 0
