"""What `diagnose` and reports say of experts: weights, means, calls, convergence and traces."""

import json
from dataclasses import replace

import numpy as np
import pytest

import maskov
from maskov import DelayedAcceptance, Metropolis, Raw, Schedule, Site, parse_energy
from maskov.diagnostics import diagnose, to_arviz
from maskov.energies.registry import weighted_terms
from maskov.ui.report import build
from maskov.ui.report.formats import to_html, to_markdown
from small import tiny_bert

MODEL = tiny_bert("red green blue black")
TEXTS = ["red green blue", "black red black"]
NAMES = ["edit", "contains('red', 'black')"]
ENERGY = "norm+2.5*edit+contains('red', 'black')"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    kernel = Metropolis(parse_energy(ENERGY), Site(), delayed=DelayedAcceptance(0))
    return maskov.sample(
        MODEL, kernel, Schedule(epochs=60), chains=4, texts=TEXTS,
        out=tmp_path_factory.mktemp("runs") / "run",
    )  # fmt: skip


def test_figures(run):
    diagnosis, traces = run.diagnose(), run.traces
    assert [expert.name for expert in diagnosis.experts] == NAMES
    assert [expert.weight for expert in diagnosis.experts] == [2.5, 1.0]
    kept = slice(60 - diagnosis.epochs, 60)
    for column, expert in enumerate(diagnosis.experts):
        values, calls = traces["expert_energy"][:, :, column], traces["expert_calls"][:, :, column]
        assert expert.energy.mean == pytest.approx(values[kept].mean())
        assert expert.calls_per_step == pytest.approx(calls.sum() / traces["steps"].sum())
        assert 0 < expert.calls_per_step < 1
        assert expert.energy.r_hat is not None
        assert expert.energy.ess_bulk > 1
        assert [group.chains for group in expert.energy.groups] == [4, 4]
    assert list(diagnosis.energies) == ["E_raw", "E_norm", "E_target"]
    assert json.dumps(diagnosis.to_dict()["experts"])


def test_runs_without_experts_have_none():
    run = maskov.sample(MODEL, Metropolis(Raw()), Schedule(epochs=2), chains=2, length=3)
    assert run.diagnose().experts == []
    report = build([run])
    assert report["runs"][0]["experts"] == {}
    assert "calls per step" not in to_html(report)


def test_an_expert_that_never_moves_does_not_decide_the_verdict(run):
    traces = {name: values.copy() for name, values in run.traces.items()}
    traces["expert_energy"][:, :, 1] = 0.0
    diagnosis = diagnose(run.manifest, traces)
    assert diagnosis.experts[1].energy.constant_groups == 2
    assert diagnosis.verdict == diagnose(run.manifest, run.traces).verdict


def test_a_foreign_manifest_may_have_no_weights(run):
    for weights, known in (((), [None, None]), ((3.0,), [3.0, None])):
        manifest = replace(run.manifest, energy="x*raw", expert_weights=weights)
        found = diagnose(manifest, run.traces).experts
        assert [expert.weight for expert in found] == known


def test_weights_are_read_without_building_anything():
    text = "raw+-0.5*classifier('a+b', label='1*2')+1e+20*my:Part(x='2*3')"
    assert weighted_terms(text) == [
        (1.0, "raw"),
        (-0.5, "classifier('a+b', label='1*2')"),
        (1e20, "my:Part(x='2*3')"),
    ]


def test_the_command(run, call):
    code, out, _ = call("diagnose", run.store.path)
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    figures = run.diagnose().experts[0]
    expected = ["edit", "2.5", f"{figures.energy.mean:.2f}", f"{figures.calls_per_step:.2f}"]
    assert ["expert", "weight", "mean", "energy", "calls", "per", "step"] in rows
    assert expected in rows
    assert ["edit", f"{figures.energy.r_hat:.3f}"] in [row[:2] for row in rows]
    told = json.loads(call("diagnose", run.store.path, "--json")[1])["diagnosis"]["experts"]
    assert [(one["name"], one["weight"]) for one in told] == [(NAMES[0], 2.5), (NAMES[1], 1.0)]


def test_reports(run):
    report = build([run])
    [shown] = report["runs"]
    assert list(shown["experts"]) == NAMES
    trace = shown["experts"]["edit"]
    assert len(trace["chains"]) == 8
    assert trace["chains"][3] == run.traces["expert_energy"][:, 3, 0].tolist()
    assert (
        trace["spread"]["middle"]
        == np.median(run.traces["expert_energy"][:, :, 0], axis=1).tolist()
    )
    assert {row[0] for row in shown["tables"][0].rows} >= {*NAMES, "E_target"}
    for text in (to_html(report), to_markdown(report)):
        assert "calls per step" in text
        assert "2.5" in text
    assert "contains(&#39;red&#39;, &#39;black&#39;)" in to_html(report)
    assert "| edit | 2.5 |" in to_markdown(report)


def test_arviz(run):
    pytest.importorskip("arviz_base")
    posterior = to_arviz(run.manifest, run.traces)["posterior"]
    assert posterior["expert_energy"].dims == ("chain", "draw", "expert")
    assert posterior["expert"].values.tolist() == NAMES
