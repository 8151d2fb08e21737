"""Translations that were stopped end with the bytes of those that were not."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import maskov
from maskov import RunError, TranslationMethod, translate
from maskov.cli import main
from maskov.config import ModelSource
from maskov.errors import Interrupted
from maskov.runs.rebuild import load_model
from maskov.translation.api import translations_of
from tiny_translation import SOURCES, save

METHODS = {
    "mh": TranslationMethod("mh", epochs=5, chains=2, lengths="drawn"),
    "mh, every epoch kept": TranslationMethod("mh", energy="norm", epochs=4, pick="lowest"),
    "block-mh": TranslationMethod("block-mh", epochs=4, block=2, block_anneal=0.5),
    "gibbs": TranslationMethod("gibbs", epochs=3),
    "mh, lengths sampled": TranslationMethod(
        "mh", lengths="sampled", epochs=4, chains=2, pick="lowest"
    ),
    "mh, from several lengths": TranslationMethod(
        "mh",
        energy="norm+2*predicted_length",
        moves="site,resize",
        lengths="top",
        chains=3,
        epochs=3,
        force_accept=1,
        start="mask-predict",
        pick="mbr",
    ),
    "mask-predict": TranslationMethod("mask-predict", iterations=5, length_beam=2),
}


class Breaker:
    """Asks to stop when the engine looks for the n-th time."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return maskov.load(folder, "cpu")


def _files(path: Path) -> dict[str, bytes]:
    kept = [path / "samples.jsonl", *sorted((path / "traces").iterdir())]
    return {file.name: file.read_bytes() for file in kept}


def _stopped(model, folder, method: TranslationMethod, path: Path, at: int) -> bool:
    """Begin a run that is asked to stop; return whether it was."""
    settings = {"out": path, "seed": 4, "source": ModelSource(str(folder))}
    try:
        translate(model, SOURCES, method, stop=Breaker(at), **settings)
    except Interrupted:
        return True
    return False


@pytest.mark.parametrize("name", METHODS)
def test_stopped_and_resumed_is_the_same_to_the_byte(name, model, folder, tmp_path):
    method = METHODS[name]
    whole = translate(model, SOURCES, method, out=tmp_path / "whole", seed=4)
    expected = _files(tmp_path / "whole")
    assert expected["samples.jsonl"].count(b"\n") >= len(SOURCES)
    stops = 0
    for at in (4, 90) if method.length_rule == "searched" else (4, 25):
        path = tmp_path / f"stopped {at}"
        if _stopped(model, folder, method, path, at):
            if not path.exists():  # while lengths were searched, before there was a run
                assert method.length_rule == "searched"
                continue
            stops += 1
            # The model is found and given its sources again by the folder alone.
            run = maskov.resume(path)
            assert translations_of(run, method) == whole
        assert _files(path) == expected
    assert stops >= 1


def test_the_model_of_a_manifest_reads_the_same_sources(model, folder, tmp_path):
    assert _stopped(model, folder, METHODS["mh"], tmp_path / "run", 30)
    manifest = maskov.Run.open(tmp_path / "run").manifest
    inputs = manifest.inputs
    assert (list(inputs.sources), inputs.lengths) == (SOURCES, "drawn")
    # Lengths are kept, so that another machine goes on with the same.
    assert [len(lengths) for lengths in inputs.chosen] == [METHODS["mh"].many] * len(SOURCES)
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


def test_another_model_is_refused(model, folder, tmp_path):
    assert _stopped(model, folder, METHODS["mh"], tmp_path / "run", 30)
    other = maskov.load(save(tmp_path / "other", seed=7), "cpu")
    with pytest.raises(RunError, match="not the one this run began with"):
        maskov.resume(tmp_path / "run", other.given(SOURCES))


@pytest.mark.parametrize("at", [30, 10**6], ids=["stopped", "finished"])
def test_the_command_goes_on_and_prints(at, model, folder, tmp_path, capfd, monkeypatch):
    method = METHODS["mh"]
    whole = translate(model, SOURCES, method, out=tmp_path / "whole", seed=4, every_chain=True)
    assert _stopped(model, folder, method, tmp_path / "run", at) is (at == 30)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.chdir(tmp_path)
    for words in (["--json", "-q"], []):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["resume", "run", *words])
        out, err = capfd.readouterr()
        assert not ended.value.code
        assert "Traceback" not in err
        if not words:
            assert out.split()[:4] == ["chain", "E_raw", "E_norm", "text"]
            assert len(out.splitlines()) == 1 + len(whole)
            continue
        lines = [json.loads(line) for line in out.splitlines()]
        assert [(SOURCES[one["template"]], one["text"]) for one in lines] == [
            (one.source, one.text) for one in whole
        ]
