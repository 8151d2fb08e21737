"""What a report says, against the traces it says it of, also of runs at the edges."""

import json
from dataclasses import replace

import numpy as np
import pytest

import maskov
from maskov.config import Schedule
from maskov.energies import Norm, Raw
from maskov.errors import InputError
from maskov.kernels import Gibbs, Metropolis
from maskov.runs import Run
from maskov.runs.store import Store
from maskov.ui.report import build, to_html, to_json, to_markdown
from maskov.ui.report.data import (
    MOST_CHAINS,
    MOST_SAMPLES,
)
from report_runs import begun, small_run
from small import random_table, tiny_bert


@pytest.fixture(scope="module")
def run():
    return maskov.sample(
        random_table(scale=0.4),  # flat enough for the chains to differ
        maskov.Metropolis(maskov.Raw()),
        schedule=Schedule(epochs=30, burn_in=6),
        chains=5,
        length=3,
        thin=8,
    )


def test_curves_are_medians_and_tenths_over_chains_and_samples_are_all_there(run):
    (told,) = build([run])["runs"]
    trace = run.traces["energy_norm"]
    spread = told["energies"]["norm"]["spread"]
    assert spread["middle"] == pytest.approx(np.median(trace, axis=1))
    assert spread["low"] == pytest.approx([np.quantile(row, 0.1) for row in trace])
    assert spread["high"] == pytest.approx([np.quantile(row, 0.9) for row in trace])
    assert told["energies"]["raw"]["chains"] == run.traces["energy_raw"].T.tolist()
    assert told["epochs"] == list(range(1, 31))
    for epoch in range(30):
        steps = run.traces["steps"][epoch]
        rate = run.traces["accepted"][epoch].sum() / steps.sum()
        assert told["accepted"]["middle"][epoch] == rate
        each = run.traces["novel"][epoch] / steps
        assert told["novel"]["high"][epoch] == pytest.approx(np.quantile(each, 0.9))
    found = [(one["chain"], one["epoch"] - 1, one["text"]) for one in told["samples"]]
    assert found == [(one.chain, one.epoch, one.text) for one in run.samples]


def test_numbers_are_those_of_the_summary_with_errors_over_chains(run):
    told = {number["name"]: number for number in build([run])["runs"][0]["numbers"]}
    summary, kept = run.summary(), slice(6, None)
    assert told["E_raw"]["value"] == summary.energy_raw_mean
    assert told["E_raw"]["standard_error"] == summary.energy_raw_standard_error
    accepted, steps = (run.traces[name][kept].sum(0) for name in ("accepted", "steps"))
    assert told["accepted"]["value"] == summary.acceptance_rate
    expected = np.std(accepted / steps, ddof=1) / np.sqrt(5)
    assert told["accepted"]["standard_error"] == pytest.approx(expected)


def test_verdict_mixing_and_positions_are_those_of_the_diagnosis(run):
    found, told = run.diagnose(), build([run])["runs"][0]
    assert told["verdict"] == found.verdict.to_dict()
    slowest, fastest = found.tokens.statistics[0], found.tokens.statistics[-1]
    ends = [f"slowest: {slowest.name}", f"fastest: {fastest.name}"]
    names = ["E_raw", "E_norm", "tokens", *ends]
    rows = told["tables"][0].rows
    assert [row[0] for row in rows] == names
    assert [rows[0][1], rows[3][1]] == [
        f"{one.r_hat:.3f}" for one in (found.energies["E_raw"], slowest)
    ]
    assert rows[4][3] == f"{fastest.ess:,.0f}"
    assert told["correlations"][1]["values"] == found.energies["E_norm"].autocorrelation
    rejected, tokens = run.traces["rejected"][6:], run.traces["tokens"]
    assert told["positions"]["positions"] == [1, 2, 3]
    assert told["positions"]["accepted"] == pytest.approx(1 - rejected.mean((0, 1)))
    assert told["positions"]["novel"] == pytest.approx((tokens[6:] != tokens[5:-1]).mean((0, 1)))


def test_samples_are_ranked_by_the_energy_of_the_target():
    settings = {"schedule": Schedule(epochs=40, burn_in=4), "chains": 4, "thin": 2}
    table = random_table(scale=2.0)
    for energy in (Raw(), Norm()):
        run = maskov.sample(table, Metropolis(energy), length=3, **settings)
        report = build([run])
        assert report["runs"][0]["order"] == str(energy)
        told = to_markdown(report).partition(f"lowest in E_{energy} of")[2]
        rows = [line.split("|") for line in told.splitlines() if line.startswith("|")][2:]
        found = [float(row[1 + (str(energy) == "norm")].replace("−", "-")) for row in rows]
        assert len(found) > 3
        assert found == sorted(found)
        assert f"E_{energy}" in to_html(report).partition("first-samples")[2].partition("</ol>")[0]


def test_energies_of_several_lengths_are_not_pooled(run):
    model = tiny_bert("red green blue white")
    schedule = Schedule(epochs=12, burn_in=2)
    mixed = maskov.sample(model, Metropolis(Norm()), schedule, chains=4, length=(3, 6), thin=2)
    lengths = mixed.traces["lengths"]
    assert len(np.unique(lengths)) > 1
    report = build([mixed])
    (told,) = report["runs"]
    assert told["per_token"]
    assert any("several lengths" in note for note in told["notes"])
    per_token = mixed.traces["energy_norm"] / lengths
    spread = told["energies"]["norm"]["spread"]
    assert spread["middle"] == pytest.approx(np.median(per_token, axis=1))
    numbers = {number["name"]: number["value"] for number in told["numbers"]}
    assert numbers["E_norm per token"] == pytest.approx(per_token[2:].mean())
    edges = report["histograms"]["norm"]["edges"]
    assert (edges[0], edges[-1]) == (per_token[2:].min(), per_token[2:].max())
    assert told["tables"][0].rows[0][5] == "–"
    text = to_markdown(report)
    assert "lowest in E_norm per token of" in text
    ranks = [one["rank"] for one in told["samples"]]
    assert f"| {min(ranks):.2f} |".replace("-", "−") in text
    # Runs of one length each, too, if the lengths differ.
    assert not build([run])["runs"][0]["per_token"]
    assert build([run, mixed])["runs"][0]["per_token"]


def test_what_cannot_be_compared_is_said_and_too_little_is_refused(run):
    other = maskov.sample(tiny_bert(), Gibbs(), Schedule(epochs=2), chains=2, length=4)
    told = " ".join(build([run, other])["cautions"])
    assert all(part in told for part in ("models differ", "lengths", "no target"))
    assert build([run, run])["cautions"] == []
    for runs, samples, said in (([], None, "at least one run"), ([run], -1, "--samples")):
        with pytest.raises(InputError, match=said):
            build(runs, samples=samples)


def test_populations_and_draws_are_not_told_as_chains():
    settings = {"length": 4, "model": "untrained"}
    run = maskov.sample(
        energy="0.5*ordered+0.5*norm",
        target_temperature=0.9,
        particles=6,
        populations=3,
        **settings,
    )
    (one,) = build([run])["runs"]
    assert "chains" not in one["verdict"]["headline"]
    assert one["tables"][0].head[1:3] == ["log Z", "spread"]
    assert one["metadata"]["populations"].startswith("3 of 6 particles each, drawn from ordered")
    assert one["metadata"]["target temperature"] == "0.9"
    assert "chains" not in one["metadata"]
    # Particles of a population depend on each other: errors are over the three populations.
    means = run.traces["energy_norm"][-1].reshape(3, 6).mean(1)
    number = next(number for number in one["numbers"] if number["name"] == "E_norm")
    assert number["value"] == pytest.approx(means.mean())
    assert number["standard_error"] == pytest.approx(means.std(ddof=1) / 3**0.5)
    # Some positions are visited often and others never, so nothing is known by position.
    assert one["positions"] is None
    (drawn,) = build([maskov.sample(energy="ordered", chains=3, **settings)])["runs"]
    assert [table.head[0] for table in drawn["tables"]] == ["expert"]
    assert not any("by position" in note for note in drawn["notes"])


# Runs at the edges: unfinished, tiny, huge, without traces of one kind or another.


def every_format(*runs: Run) -> dict:
    """Make all three; return the numbers."""
    report = build(runs)
    assert "</html>" in to_html(report)
    assert to_markdown(report).startswith("# ")
    return json.loads(to_json(report))


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_unfinished_run_says_so(done):
    whole = small_run(schedule=Schedule(epochs=4, burn_in=1))
    (told,) = every_format(begun(whole, done))["runs"]
    assert not told["finished"]
    assert told["epochs"] == list(range(1, done + 1))
    assert told["samples"] == []
    assert any(f"not finished: {done} of 4" in note for note in told["notes"])
    assert "not finished</span>" in to_html(build([begun(whole, done)]))


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


def test_an_infinite_energy_is_no_number_and_breaks_nothing():
    """Of a sequence of probability zero; warnings are errors here."""
    run = small_run(3, 30)
    run.store.traced()["energy_norm"].read()["energy_norm"][5, 1] = np.inf
    (told,) = every_format(run)["runs"]
    numbers = {number["name"]: number for number in told["numbers"]}
    assert numbers["E_norm"]["value"] is None
    assert numbers["E_norm"]["standard_error"] is None
    assert numbers["E_raw"]["standard_error"] > 0
