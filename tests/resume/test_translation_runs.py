"""Runs of translations, with and without a twin: their manifests, commands and refusals."""

from pathlib import Path

import pytest

import maskov
from maskov import TranslationMethod, translate
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
    again = load_model(manifest.config.model, inputs.sources)
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
