"""The experiment with sampled lengths: systems that share runs, comparisons, and going on."""

import json
from dataclasses import replace

import pytest
from experiments.studies.lengths import __main__ as lengths, systems
from experiments.studies.lengths.__main__ import main
from experiments.studies.lengths.page import mean_energy
from experiments.studies.lengths.systems import BASELINE, all_systems, twin_energy

from maskov.translation.methods import TranslationMethod
from tiny_translation import SOURCES, save

CHOSEN = ["mask-predict", BASELINE, "MH, sampled length", "MH, sampled length, MBR over chains"]


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Return a small experiment; its chains have three epochs."""
    short = replace(systems._SAMPLED, epochs=3)
    monkeypatch.setattr(systems, "_SAMPLED", short)
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "tiny.deen.de").write_text("\n".join([*SOURCES, "red " * 50]) + "\n")
    (tests / "tiny.deen.en").write_text("\n".join(["red blue", *SOURCES[1:], "red"]) + "\n")
    model, twin = save(tmp_path / "model"), save(tmp_path / "twin", causal=True)
    return [str(tests), "--set", "tiny.deen", "--model", str(model), "--twin", str(twin),
            "--device", "cpu", "--chains", "3", "--out", str(tmp_path / "out")]  # fmt: skip


def test_systems_and_their_comparison(words, tmp_path, monkeypatch):
    calls = []

    def counted(given, method, drafts=None, **settings):
        calls.append(method)
        return real(given, method, drafts, **settings)

    real = lengths.run_method
    monkeypatch.setattr(lengths, "run_method", counted)
    main([*words, "--systems", *CHOSEN[:3]])
    assert len(calls) == 3
    main([*words, "--systems", *CHOSEN, "autoregressive, greedy"])
    assert len(calls) == 4  # what is there is not run again
    found = json.loads((tmp_path / "out" / "lengths.json").read_text())
    assert found["too_long"] == 1
    for name, row in found["rows"].items():
        assert row["sentences"] == len(SOURCES) + 1
        assert row["energy_norm"] > 0
        assert row["predicted_length"] > 0
        assert ("against_baseline" in row) is (name != BASELINE)
        texts = (tmp_path / "out" / "texts").glob("*.txt")
        assert all(len(file.read_text().split("\n")) == len(SOURCES) + 2 for file in texts)
    page = (tmp_path / "out" / "README.md").read_text()
    assert all(f"| {name} |" in page for name in (*CHOSEN, "autoregressive, greedy"))
    with pytest.raises(SystemExit):
        main([*words, "--seed", "1"])


def test_the_target_with_the_twin_is_shown_for_every_system(words, tmp_path):
    twin = "MH, sampled length, with the twin"
    started = f"{twin}, from its translation"
    chosen = [
        BASELINE, f"{BASELINE}, chosen with the twin", twin, f"{twin}, lowest of all chains",
        "autoregressive, greedy", started,
    ]  # fmt: skip
    main([*words, "--systems", *chosen])
    rows = json.loads((tmp_path / "out" / "lengths.json").read_text())["rows"]
    folder = words[words.index("--twin") + 1]
    energy = twin_energy(folder)
    totals = {name: mean_energy(row, energy) for name, row in rows.items()}
    for name, row in rows.items():
        assert row["autoregressive"] > 0
        assert row["target"] == (energy if name.startswith("MH") else None)
        assert totals[name] == pytest.approx(row["energy_norm"] + 0.5 * row["autoregressive"])
    assert rows[started]["method"]["start"] == "autoregressive"
    # The choice by the target is the lowest of what there is to choose from.
    assert totals[chosen[1]] <= totals[BASELINE]
    assert totals[f"{twin}, lowest of all chains"] <= totals[twin]
    page = (tmp_path / "out" / "README.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {twin} |")]
    own, _, shown = line.split(" | ")[5:8]
    assert own == shown.strip("*") == f"{totals[twin]:.2f}"
    best = min(totals, key=totals.__getitem__)
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {best} |")]
    assert line.split(" | ")[7] == f"**{totals[best]:.2f}**"


def test_the_papers_settings_are_written_out():
    paper = all_systems()["MH, fixed length (paper)"].method
    assert paper.kernel() == TranslationMethod("mh").kernel()
    assert paper.schedule() == TranslationMethod("mh", force_accept=2).schedule()
