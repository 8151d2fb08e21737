"""What a `Run` offers in Python: samples, tables, figures, pages, and going on with it."""

import json
import re
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import maskov
from maskov import InputError, Metropolis, Raw, Run, Schedule
from small import tiny_bert
from stopped_runs import cut

MODEL = tiny_bert("red green blue white", torch.float32)
SIX = {"schedule": Schedule(epochs=6), "chains": 3, "length": 4}


@pytest.fixture(scope="module")
def run():
    return maskov.sample(MODEL, energy="raw", epochs=30, burn_in=5, chains=6, length=4, seed=1)


def test_it_is_a_sequence_of_its_samples(run):
    assert len(run) == 6
    assert list(run) == run.samples
    assert run[0] == run.samples[0]
    assert [one.chain for one in run] == list(range(6))


def test_its_representation_is_short(run):
    assert repr(run) == "<Run of tiny-bert: 6 samples, 6 chains, 30 epochs, energy raw>"
    gibbs = maskov.sample(MODEL, kernel="gibbs", epochs=3, chains=2, length=3)
    assert repr(gibbs).endswith("no target>")
    assert gibbs.plot().get_ylabel() == "energy raw"


def test_an_unfinished_run_says_so(tmp_path):
    cut(tmp_path / "run", 4, MODEL, Metropolis(Raw()), **SIX)
    opened = Run.open(tmp_path / "run")
    assert opened  # though it has no sample yet
    assert len(opened) == len(opened.to_pandas()) == 0
    assert "text" in opened.to_pandas()
    assert re.search(r"\d of 6 epochs", repr(opened))
    assert "too short to tell" in opened._repr_html_()


def test_a_notebook_shows_verdict_energies_and_a_few_samples(run):
    page = run._repr_html_()
    assert f"<b>{run.diagnose().verdict.state}</b>" in page
    assert f"<td>{run.diagnose().energies['E_raw'].mean:.2f}</td>" in page
    assert page.count("<td style") == 5
    assert "and 1 more samples" in page
    assert all(f">{one.text}</td>" in page for one in run.samples[:5])
    model = tiny_bert("<b>x</b> \x1b[31m <script>", torch.float32)
    page = maskov.sample(model, epochs=2, chains=3, length=4)._repr_html_()
    assert not any(sign in page for sign in ("<script", "<b>x", "\x1b"))
    assert "&lt;" in page


def test_tables_of_samples_and_traces(run):
    table = run.to_pandas()
    assert list(table["text"]) == [one.text for one in run]
    assert table["energy_norm"].tolist() == [one.energy_norm for one in run]
    assert list(table["ids"]) == [one.ids for one in run]
    assert "name" not in table
    options = {"epochs": 2, "chains": 2, "length": 3}
    experts = maskov.sample(MODEL, energy="raw+2*contains('red')", **options).to_pandas()
    assert {"energy_target", "energy_contains('red')"} <= set(experts.columns)
    trace = run.to_arviz()["posterior"]["energy_raw"]
    np.testing.assert_array_equal(trace.values, run.traces["energy_raw"][5:].T)


def test_what_is_plotted_and_printed(run):
    energies, r_hats = run.plot(), run.plot("r_hat")
    assert run.plot("accepted", energies.figure.add_subplot()).get_ylabel() == "accepted"
    with pytest.raises(InputError, match=r"no 'tokens' to plot; use one of energy, r_hat, "):
        run.plot("tokens")
    mean = next(line for line in energies.lines if line.get_label() == "mean of all chains")
    np.testing.assert_allclose(mean.get_ydata(), run.traces["energy_target"].mean(1))
    assert len(energies.lines) == 7
    diagnosis = run.diagnose()
    named = [label.get_text() for label in r_hats.get_yticklabels()]
    assert named == ["E_raw", "E_norm", *(one.name for one in diagnosis.tokens.statistics)]
    widths = [bar.get_width() + 1 for bar in r_hats.patches]
    assert widths[0] == pytest.approx(min(diagnosis.energies["E_raw"].r_hat, 3.0))
    assert r_hats.get_title() == diagnosis.verdict.state
    told = str(diagnosis).splitlines()
    assert told[0] == diagnosis.verdict.lines()[0] == str(run).splitlines()[1]
    assert {"E_raw", "E_norm", "tokens"} <= {line.split()[0] for line in told}
    assert str(run).endswith("\n".join(one.text for one in run.samples[:5]))
    shown = str(maskov.infill(MODEL, "red [MASK]")).splitlines()
    assert [line.split()[3] for line in shown] == ["red"] * 4


@pytest.mark.parametrize(("method", "module"), [("to_pandas", "pandas"), ("plot", "matplotlib")])
def test_what_is_not_installed_is_named(run, method, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs {module}: pip install '\.\[notebook\]'"):
        getattr(run, method)()


def test_a_report_is_the_file_of_the_command(run, call, tmp_path):
    kept = maskov.sample(MODEL, epochs=4, chains=2, length=3, out=tmp_path / "run")
    for suffix in ("html", "md", "json"):
        path = kept.report(tmp_path / f"python.{suffix}")
        assert call("report", tmp_path / "run", "--out", tmp_path / f"command.{suffix}")[0] == 0
        assert path.read_bytes() == (tmp_path / f"command.{suffix}").read_bytes()
    data = json.loads(run.report(str(tmp_path / "run.json"), title="mine").read_text())
    assert data["title"] == "mine"
    for wrong, phrase in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "run.html", "cannot write"),
    ):
        with pytest.raises(InputError, match=phrase):
            run.report(wrong)


@dataclass(frozen=True)
class Colder(Metropolis):
    """A kernel of one's own."""


@dataclass(frozen=True)
class Blueness:
    """An energy of one's own."""

    weight: float = 2.0

    def __call__(self, texts):
        return [self.weight * text.count("blue") for text in texts]


def test_a_kernel_of_ones_own_is_passed_instead_of_trusted(tmp_path):
    kernel = Colder(Raw(), target_temperature=0.5)
    cut(tmp_path / "run", 4, MODEL, kernel, **SIX)
    with pytest.raises(maskov.RunError, match="--trust-parts"):
        maskov.resume(tmp_path / "run", MODEL)
    for other in (Colder(Raw(), target_temperature=0.6), Metropolis(Raw())):
        with pytest.raises(InputError, match="is not the one that this run began with"):
            maskov.resume(tmp_path / "run", MODEL, kernel=other)
    opened = Run.open(tmp_path / "run")
    assert not opened.finished
    resumed = maskov.resume(opened, MODEL, kernel=kernel)
    assert resumed.samples == maskov.sample(MODEL, kernel, **SIX).samples


@pytest.mark.parametrize("burn_in", [False, True])
def test_an_energy_of_ones_own_is_passed_instead_of_trusted(burn_in, tmp_path):
    energy = Raw() + maskov.energies.as_energy(Blueness())
    settings = {"energy": energy, "epochs": 6, "chains": 3, "length": 4}
    settings |= {} if burn_in else {"burn_in": 0}
    cut(tmp_path / "run", 4, MODEL, **settings)
    manifest = Run.open(tmp_path / "run").manifest
    assert (manifest.schedule.burn_in_energy is not None) is burn_in
    with pytest.raises(maskov.RunError, match="--trust-parts"):
        maskov.resume(tmp_path / "run", MODEL)
    other = Raw() + maskov.energies.as_energy(Blueness(3.0))
    with pytest.raises(InputError, match="is not that of this run"):
        maskov.resume(tmp_path / "run", MODEL, energy=other)
    with pytest.raises(InputError, match="not both"):
        maskov.resume(tmp_path / "run", MODEL, kernel=Metropolis(energy), energy=energy)
    resumed = maskov.resume(tmp_path / "run", MODEL, energy=energy)
    assert resumed.samples == maskov.sample(MODEL, **settings).samples


def test_a_run_in_memory_has_no_folder(run):
    with pytest.raises(InputError, match="sample with `out`"):
        maskov.resume(run)
