"""Translations by a masked model and its twin: the same bytes after a stop and by workers."""

from __future__ import annotations

import json

import pytest

import maskov
from maskov import RunError, TranslationMethod, Workers, translate
from maskov.cli import main
from maskov.config import ModelSource
from maskov.errors import Interrupted
from maskov.translation.api import translations_of
from odd_workers import files, oddly
from tiny_translation import SOURCES, save, shelf


class Breaker:
    """Asks to stop when the engine looks for the n-th time."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture
def models(tmp_path):
    return shelf(tmp_path / "models")


def _method(models, **changes):
    energy = f"norm+0.7*autoregressive({models / 'tiny-twin'})+0.5*predicted_length"
    chosen = {"lengths": "sampled", "epochs": 3, "chains": 2, "pick": "lowest"} | changes
    return TranslationMethod("mh", energy=energy, **chosen)


def _run(models, path, **settings):
    model = maskov.load(models / "tiny-translation", "cpu")
    source = ModelSource(str(models / "tiny-translation"))
    return translate(
        model, SOURCES, _method(models), out=path, seed=4, resident=3, source=source, **settings
    )


def test_the_same_bytes_after_a_stop_and_by_workers(models, tmp_path, monkeypatch):
    whole = _run(models, tmp_path / "whole")
    with pytest.raises(Interrupted):
        _run(models, tmp_path / "stopped", stop=Breaker(60))
    run = maskov.resume(tmp_path / "stopped")
    assert translations_of(run, _method(models)) == whole
    oddly(monkeypatch, count=2, seed=8)
    assert _run(models, tmp_path / "there", workers=Workers(2)) == whole
    expected = files(tmp_path / "whole")
    for name in ("stopped", "there"):
        assert files(tmp_path / name) == expected


def test_drafts_are_part_of_the_run(models, tmp_path, monkeypatch):
    model = maskov.load(models / "tiny-translation", "cpu")
    sources, drafts = SOURCES[:2], ["blue", "red red"]
    settings = {
        "seed": 4, "resident": 1, "source": ModelSource(str(models / "tiny-translation")),
        "drafts": drafts,
    }  # fmt: skip
    method = _method(models, start="drafts", chains=1)
    whole = translate(model, sources, method, out=tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        translate(model, sources, method, out=tmp_path / "stopped", stop=Breaker(8), **settings)
    maskov.resume(tmp_path / "stopped")
    oddly(monkeypatch, count=2, seed=8)
    there = translate(
        model, sources, method, out=tmp_path / "there", workers=Workers(2), **settings
    )
    assert there == whole
    expected = files(tmp_path / "whole")
    for name in ("stopped", "there"):
        assert files(tmp_path / name) == expected
    manifest = maskov.Run.open(tmp_path / "whole").manifest
    assert manifest.inputs.texts == tuple(drafts)


def test_the_run_names_the_twin_and_refuses_another(models, tmp_path):
    with pytest.raises(Interrupted):
        _run(models, tmp_path / "run", stop=Breaker(60))
    manifest = maskov.Run.open(tmp_path / "run").manifest
    folder = models / "tiny-twin"
    assert list(manifest.energy_models) == [str(folder)]
    save(folder, seed=5, causal=True)
    with pytest.raises(RunError, match="is not the one this run began with"):
        maskov.resume(tmp_path / "run")


def test_samples_have_the_energy_of_each_part(models, tmp_path):
    _run(models, tmp_path / "run")
    names = _method(models).target.split("+")
    twin = names[1].partition("*")[2]
    for one in maskov.Run.open(tmp_path / "run").samples:
        energies = one.energies
        parts = one.energy_norm + 0.7 * energies[twin] + 0.5 * energies["predicted_length"]
        assert energies["target"] == pytest.approx(parts, abs=1e-4)


def _call(monkeypatch, capfd, tmp_path, *words):
    (tmp_path / "in.txt").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["translate", "in.txt", "--method", "mh", "--epochs", "2", "-q", *words])
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return ended.value.code or 0, out, err


def test_the_command_knows_the_twin_of_the_pair(models, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("MASKOV_MODELS", str(models))
    call = (monkeypatch, capfd, tmp_path)
    pair = ["--pair", "de-en", "--lengths", "sampled", "--energy"]
    code, out, _ = _call(*call, *pair, "norm+autoregressive", "--out", "run")
    assert (code, len(out.splitlines())) == (0, len(SOURCES))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert "norm+autoregressive(tiny-twin)" in json.dumps(manifest)
    assert _call(*call, *pair, "norm+autoregressive(tiny-twin)") == (0, out, "")
    # By its folder it is another name, which is found from everywhere.
    monkeypatch.chdir(models)
    given = ["norm+autoregressive", "--twin", str(models / "tiny-twin"), "--out", "named"]
    assert _call(*call, *pair, *given)[1] == out
    manifest = json.loads((tmp_path / "named" / "manifest.json").read_text(encoding="utf-8"))
    assert f"autoregressive({models / 'tiny-twin'})" in json.dumps(manifest)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--pair de-en --energy norm --twin tiny-twin", "makes no use of --twin"),
        ("--model MODEL --energy norm+autoregressive", "give the languages"),
        ("--pair de-en --energy autoregressive(tiny-translation)", "is a masked model"),
        ("--pair de-en --energy autoregressive --pick lowest", "--pick lowest"),
    ],
)
def test_refusals(words, sentence, models, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("MASKOV_MODELS", str(models))
    words = words.replace("MODEL", str(models / "tiny-translation"))
    code, out, err = _call(monkeypatch, capfd, tmp_path, *words.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
