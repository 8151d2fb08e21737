"""What a report says, against the traces it says it of."""

import numpy as np
import pytest

import maskov
from maskov.config import LinearSchedule, Schedule
from maskov.energies import Norm, Raw
from maskov.errors import InputError
from maskov.kernels import Gibbs, Metropolis
from maskov.ui.report import build, to_html, to_markdown
from maskov.ui.report.data import energy_spread, histogram, rate_spread
from maskov.ui.report.samples import spaced
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


def test_energies_are_medians_and_tenths_over_chains(run):
    (told,) = build([run])["runs"]
    trace = run.traces["energy_norm"]
    spread = told["energies"]["norm"]["spread"]
    assert spread["middle"] == pytest.approx(np.median(trace, axis=1))
    assert spread["low"] == pytest.approx([np.quantile(row, 0.1) for row in trace])
    assert spread["high"] == pytest.approx([np.quantile(row, 0.9) for row in trace])
    assert told["energies"]["raw"]["chains"] == run.traces["energy_raw"].T.tolist()
    assert told["epochs"] == list(range(1, 31))


def test_rates_are_shares_of_steps(run):
    (told,) = build([run])["runs"]
    for epoch in range(30):
        steps = run.traces["steps"][epoch]
        assert (
            told["accepted"]["middle"][epoch] == run.traces["accepted"][epoch].sum() / steps.sum()
        )
        each = run.traces["novel"][epoch] / steps
        assert told["novel"]["high"][epoch] == pytest.approx(np.quantile(each, 0.9))


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


def test_histograms_have_common_edges_and_count_everything_after_burn_in(run):
    other = maskov.sample(random_table(), Gibbs(), Schedule(epochs=9), chains=2, length=3)
    found = build([run, other])["histograms"]["raw"]
    for shares, values in zip(
        found["shares"], (run.traces["energy_raw"][6:], other.traces["energy_raw"]), strict=True
    ):
        assert sum(shares) == pytest.approx(1)
        inside = [
            ((values >= low) & (values < high)).mean()
            for low, high in zip(found["edges"][:-1], found["edges"][1:], strict=True)
        ]
        assert shares[:-1] == pytest.approx(inside[:-1])


def test_samples_are_all_there_with_epochs_counted_from_one(run):
    (told,) = build([run])["runs"]
    assert [(one["chain"], one["epoch"] - 1, one["text"]) for one in told["samples"]] == [
        (one.chain, one.epoch, one.text) for one in run.samples
    ]
    assert not told["shaded"]
    assert told["samples"][0]["terms"] is None


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


def test_a_moving_temperature_is_told_and_a_fixed_one_is_not(run):
    assert build([run])["runs"][0]["temperature"] is None
    schedule = Schedule(epochs=4, target_temperature=LinearSchedule(1.0, rate=0.3, floor=0.5))
    still = Schedule(epochs=4, target_temperature=LinearSchedule(0.7))
    steady = maskov.sample(random_table(), schedule=still, chains=2, length=3)
    assert build([steady])["runs"][0]["temperature"] is None
    annealed = maskov.sample(random_table(), schedule=schedule, chains=2, length=3)
    (told,) = build([annealed])["runs"]
    assert told["temperature"] == pytest.approx([1.0, 0.7, 0.5, 0.5])
    assert told["verdict"]["state"] == "annealed"


def test_what_cannot_be_compared_is_said(run):
    other = maskov.sample(tiny_bert(), Gibbs(), Schedule(epochs=2), chains=2, length=4)
    told = " ".join(build([run, other])["cautions"])
    assert all(part in told for part in ("models differ", "lengths", "no target"))
    assert build([run, run])["cautions"] == []


def test_too_little_is_refused(run):
    with pytest.raises(InputError, match="at least one run"):
        build([])
    with pytest.raises(InputError, match="--samples"):
        build([run], samples=-1)


@pytest.mark.parametrize(("count", "most"), [(1, 1), (9, 1), (10, 10), (11, 10), (100_000, 40)])
def test_even_choices_are_distinct_and_reach_from_end_to_end(count, most):
    found = spaced(count, most)
    assert len(set(found)) == len(found) == min(count, most)
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == count - 1 or most == 1


def test_epochs_that_were_not_traced_are_gaps():
    values = np.array([[1.0, 3.0], [np.nan, np.nan], [5.0, 5.0]])
    assert energy_spread(values)["middle"] == [2.0, None, 5.0]
    nothing = rate_spread(np.zeros((1, 2), dtype=np.int64), np.zeros((1, 2), dtype=np.int64))
    assert nothing["middle"] == nothing["low"] == [None]
    assert histogram([np.full((2, 2), np.nan)]) is None
    assert sum(histogram([np.full((2, 2), 4.0)])["shares"][0]) == 1


def test_a_target_that_is_neither_energy_is_judged_too():
    run = maskov.sample(
        random_table(), Metropolis(Raw() + 0.5 * Norm()), Schedule(epochs=2), chains=2, length=3
    )
    (told,) = build([run])["runs"]
    assert [row[0] for row in told["tables"][0].rows] == ["E_raw", "E_norm", "E_target", "tokens"]


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
