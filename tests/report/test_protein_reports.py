"""Reports of runs from FASTA: logos, mutations, distances, and energies by mutations."""

import json

import pytest

import maskov
from maskov import Record
from maskov.config import Schedule
from maskov.fasta import mutations
from maskov.ui.report import build, to_html, to_json, to_markdown
from maskov.ui.report.data import MOST_PARENTS
from report_runs import small_run
from tiny_proteins import spaced_model

PARENTS = [Record("heavy", "EVQLVESGGG"), Record("light", "DIQMTQ")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return spaced_model(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture(scope="module")
def run(model):
    schedule = Schedule(epochs=6, burn_in=2)
    return maskov.sample(model, schedule=schedule, chains=3, texts=PARENTS, thin=1)


def test_families_are_counted_from_the_samples(run):
    heavy, light = build([run])["runs"][0]["families"]
    assert (heavy["name"], heavy["parent"], light["parent"]) == ("heavy", "EVQLVESGGG", "DIQMTQ")
    own = [sample for sample in run.samples if sample.template == 0]
    assert heavy["samples"] == len(own) == 12
    rows = ["".join(sample.tokens) for sample in own]
    for place, column in enumerate(heavy["columns"]):
        letters = [row[place] for row in rows]
        assert dict(zip(column["letters"], column["shares"], strict=True)) == pytest.approx(
            {letter: letters.count(letter) / 12 for letter in letters}
        )
        assert sorted(column["shares"], reverse=True) == column["shares"]
        assert heavy["changed"][place] == pytest.approx(
            sum(letter != heavy["parent"][place] for letter in letters) / 12
        )
    found = [mutations(heavy["parent"], row) for row in rows]
    assert heavy["mean_mutations"] == pytest.approx(sum(map(len, found)) / 12)
    assert heavy["to_parent"] == pytest.approx(
        [[len(one) for one in found].count(n) / 12 for n in range(len(heavy["to_parent"]))]
    )
    pairs = [
        sum(a != b for a, b in zip(rows[i], rows[j], strict=True))
        for i in range(12)
        for j in range(i)
    ]
    assert heavy["mean_distance"] == pytest.approx(sum(pairs) / len(pairs))
    assert heavy["distances"] == pytest.approx(
        [pairs.count(n) / len(pairs) for n in range(len(heavy["distances"]))]
    )
    name, share = heavy["frequent"][0]
    assert share == pytest.approx(sum(name in one for one in found) / 12)
    for row in heavy["energies"]:
        energies = [sample.energy_norm for sample in own if len(sample.mutations) == row["count"]]
        assert row["samples"] == len(energies)
        assert row["mean"] == pytest.approx(sum(energies) / len(energies))
        assert row["low"] <= row["mean"] <= row["high"] or row["samples"] > 1


def test_every_format_shows_parents_and_logos_mark_what_changes(run):
    report = build([run])
    families = report["runs"][0]["families"]
    page, text, data = to_html(report), to_markdown(report), json.loads(to_json(report))
    assert (page.count('<svg class="logo"'), page.count("<g>")) == (2, 16)
    assert 'data-family="1" data-run="0"' in page
    assert families[0]["frequent"][0][0] in page
    assert families[0]["frequent"][0][0] in text.partition("| parent | samples | mutations |")[2]
    assert data["runs"][0]["families"][0]["parent"] == "EVQLVESGGG"
    assert data["runs"][0]["samples"][0]["name"] == "heavy"
    changed = sum(share > 0 for family in families for share in family["changed"])
    assert page.count('class="changed"') == changed > 0
    still = [one | {"changed": [0.0] * len(one["parent"])} for one in families]
    page = to_html(report | {"runs": [report["runs"][0] | {"families": still}]})
    assert 'class="changed"' not in page
    plain = build([small_run()])
    assert plain["runs"][0]["families"] == []
    assert "<svg" not in to_html(plain).split("<script")[0]


def test_many_parents_are_cut_and_it_is_told(model):
    texts = [Record(f"p{number}", "EVQL") for number in range(MOST_PARENTS + 2)]
    run = maskov.sample(model, schedule=Schedule(epochs=1), chains=1, texts=texts)
    (report,) = build([run])["runs"]
    assert len(report["families"]) == MOST_PARENTS
    assert any("first 8 of 10 parents" in remark for remark in report["notes"])
    assert report["families"][0]["mean_distance"] is None
