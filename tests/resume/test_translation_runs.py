"""Runs of translations, with and without a twin: their manifests, commands and refusals."""

import json
from pathlib import Path

import pytest

import maskov
from maskov import TranslationMethod, translate
from maskov.cli import main
from maskov.config import ModelSource
from maskov.errors import Interrupted, RunError
from maskov.runs.manifest import load_model
from tiny_translation import SOURCES, save, shelf

MH = TranslationMethod("mh", epochs=5, chains=2, lengths="drawn")


@pytest.fixture
def models(tmp_path) -> Path:
    return shelf(tmp_path / "models")


@pytest.fixture
def model(models):
    return maskov.load(models / "tiny-translation", "cpu")


def _stopped(models: Path, method: TranslationMethod, path: Path, at: int = 30) -> bool:
    """Begin a run that is asked to stop; return whether it was."""
    folder, looks = models / "tiny-translation", iter(range(10**9))
    settings = {"out": path, "seed": 4, "source": ModelSource(str(folder))}
    try:
        translate(
            maskov.load(folder, "cpu"), SOURCES, method, stop=lambda: next(looks) >= at, **settings
        )
    except Interrupted:
        return True
    return False


def test_the_model_of_a_manifest_reads_the_same_sources(model, models, tmp_path):
    assert _stopped(models, MH, tmp_path / "run")
    manifest = maskov.Run.open(tmp_path / "run").manifest
    inputs = manifest.inputs
    assert (list(inputs.sources), inputs.lengths) == (SOURCES, "drawn")
    # Lengths are kept, so that another machine goes on with the same.
    assert [len(lengths) for lengths in inputs.chosen] == [MH.many] * len(SOURCES)
    again = load_model(manifest)
    assert list(again.sources.texts) == SOURCES
    assert again.fingerprint() == model.fingerprint()
    given = model.given(SOURCES)
    assert again.length_scores().equal(given.length_scores())


def test_the_signature_is_of_the_sources_and_of_the_rule_for_lengths(model):
    def signature(texts, lengths):
        return maskov.sample(
            model.given(texts), maskov.Gibbs(), maskov.Schedule(epochs=1), lengths=lengths, chains=1
        ).signature

    one = signature(["red"], "best")
    assert one == signature(["red"], "best")
    assert len({one, signature(["blue"], "best"), signature(["red"], "drawn")}) == 3


@pytest.mark.parametrize("which", ["model", "twin"])
def test_another_model_is_refused(which, models, tmp_path):
    twin = models / "tiny-twin"
    energy = f"norm+0.7*autoregressive({twin})"
    method = MH if which == "model" else TranslationMethod("mh", energy=energy, epochs=3)
    assert _stopped(models, method, tmp_path / "run", 10)
    assert list(maskov.Run.open(tmp_path / "run").manifest.energy_models) == [str(twin)] * (
        which == "twin"
    )
    save(twin if which == "twin" else models / "tiny-translation", seed=7, causal=which == "twin")
    with pytest.raises(RunError, match="not the one this run began with"):
        maskov.resume(tmp_path / "run")


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
