"""The experiment with sampled lengths: systems that share runs, comparisons, and going on."""

from __future__ import annotations

import json

import pytest
from experiments.translation_lengths import BASELINE, all_systems, main

from experiments import translation_lengths
from maskov.translation.methods import SAMPLED, TranslationMethod
from tiny_translation import SOURCES, save

CHOSEN = ["mask-predict", BASELINE, "MH, sampled length", "MH, sampled length, MBR over chains"]


@pytest.fixture
def words(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "tiny.deen.de").write_text("\n".join([*SOURCES, "red " * 50]) + "\n")
    (tests / "tiny.deen.en").write_text("\n".join(["red blue", *SOURCES[1:], "red"]) + "\n")
    model, twin = save(tmp_path / "model"), save(tmp_path / "twin", causal=True)
    return [str(tests), "--set", "tiny.deen", "--model", str(model), "--twin", str(twin),
            "--device", "cpu", "--out", str(tmp_path / "out")]  # fmt: skip


def test_systems_and_their_comparison(words, tmp_path, monkeypatch):
    calls = []

    def counted(given, method, **settings):
        calls.append(method)
        return real(given, method, **settings)

    real = translation_lengths.run_method
    monkeypatch.setattr(translation_lengths, "run_method", counted)
    main([*words, "--systems", *CHOSEN[:3]])
    assert len(calls) == 3
    main([*words, "--systems", *CHOSEN, "autoregressive, greedy"])
    assert len(calls) == 4  # what is there is not run again
    found = json.loads((tmp_path / "out" / "lengths.json").read_text())
    assert found["too_long"] == 1
    for name, row in found["rows"].items():
        assert row["sentences"] == len(SOURCES) + 1
        assert len(row["energy_norm"]) == len(row["tokens"]) == len(SOURCES)
        assert all(value > 0 for value in row["predicted_length"])
        assert ("against_baseline" in row) is (name != BASELINE)
        texts = (tmp_path / "out" / "texts").glob("*.txt")
        assert all(len(file.read_text().split("\n")) == len(SOURCES) + 2 for file in texts)
    page = (tmp_path / "out" / "README.md").read_text()
    assert all(f"| {name} |" in page for name in (*CHOSEN, "autoregressive, greedy"))
    with pytest.raises(SystemExit):
        main([*words, "--seed", "1"])


def test_variants_are_those_of_the_default(words, tmp_path):
    main([*words, "--tune", "--systems", SAMPLED.energy])
    row = json.loads((tmp_path / "out" / "lengths.json").read_text())["rows"][SAMPLED.energy]
    kept = TranslationMethod(**row["method"])
    assert kept.kernel() == TranslationMethod("mh", lengths="sampled").kernel()


def test_the_papers_settings_are_written_out():
    paper = all_systems()["MH, fixed length (paper)"].method
    assert paper.kernel() == TranslationMethod("mh").kernel()
    assert paper.schedule() == TranslationMethod("mh", force_accept=2).schedule()
