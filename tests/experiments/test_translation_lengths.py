"""The experiment with sampled lengths: systems that share runs, comparisons, and going on."""

import json
from dataclasses import replace

import pytest
from experiments.studies.lengths import __main__ as lengths, systems
from experiments.studies.lengths.__main__ import main
from experiments.studies.lengths.page import mean_energy
from experiments.studies.lengths.systems import BASELINE, twin_energy

from tiny_translation import SOURCES, save

TWIN = "MH, sampled length, with the twin"
SYSTEMS = [
    "mask-predict", BASELINE, "MH, sampled length, MBR over chains", "autoregressive, greedy",
    f"{BASELINE}, chosen with the twin", TWIN, f"{TWIN}, lowest of all chains",
    f"{TWIN}, from its translation",
]  # fmt: skip


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
    main([*words, "--systems", *SYSTEMS[:2]])
    assert len(calls) == 2
    main([*words, "--systems", *SYSTEMS])
    assert len(calls) == 6  # systems share runs, and what is there is not run again
    found = json.loads((tmp_path / "out" / "lengths.json").read_text())
    assert found["too_long"] == 1
    rows, energy = found["rows"], twin_energy(words[words.index("--twin") + 1])
    totals = {name: mean_energy(row, energy) for name, row in rows.items()}
    for name, row in rows.items():
        assert row["sentences"] == len(SOURCES) + 1
        assert row["predicted_length"] > 0
        assert ("against_baseline" in row) is (name != BASELINE)
        assert TWIN not in name or row["target"] == energy
        assert totals[name] == pytest.approx(row["energy_norm"] + 0.5 * row["autoregressive"])
    for file in (tmp_path / "out" / "texts").glob("*.txt"):
        assert len(file.read_text().split("\n")) == len(SOURCES) + 2
    assert rows[SYSTEMS[-1]]["method"]["start"] == "autoregressive"
    # The choice by the target is the lowest of what there is to choose from.
    assert totals[f"{BASELINE}, chosen with the twin"] <= totals[BASELINE]
    assert totals[f"{TWIN}, lowest of all chains"] <= totals[TWIN]
    page = (tmp_path / "out" / "README.md").read_text()
    lines = {line.split(" | ")[0][2:]: line.split(" | ") for line in page.splitlines()}
    assert lines.keys() >= set(SYSTEMS)
    assert lines[TWIN][5] == lines[TWIN][7].strip("*") == f"{totals[TWIN]:.2f}"
    best = min(totals, key=totals.__getitem__)
    assert lines[best][7] == f"**{totals[best]:.2f}**"
    with pytest.raises(SystemExit):
        main([*words, "--seed", "1"])
