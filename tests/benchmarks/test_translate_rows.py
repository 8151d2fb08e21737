"""How fast translations come: every method has a row, and what is measured is kept."""

from __future__ import annotations

import json

import pytest

from maskov.benchmarks import translate
from maskov.translation.methods import METHODS
from tiny_translation import WORDS, save


@pytest.fixture
def _words_it_knows(monkeypatch):
    monkeypatch.setattr(translate, "SENTENCES", [" ".join(WORDS[:2]), WORDS[0]])


@pytest.mark.usefixtures("_words_it_knows")
def test_rows_are_written_one_by_one_and_not_measured_twice(tmp_path, capsys):
    model = save(tmp_path / "model")
    twin = save(tmp_path / "twin", causal=True)
    out = tmp_path / "rows.json"
    call = ["--model", str(model), "--twin", str(twin), "--sentences", "3", "--out", str(out)]
    translate.main([*call, "--methods", "greedy", "mh raw"])
    first = json.loads(out.read_text())
    assert list(first["rows"]) == ["greedy", "mh raw"]
    assert all(
        row["sentences_per_second"] == pytest.approx(3 / row["seconds"])
        for row in first["rows"].values()
    )
    translate.main([*call, "--methods", "greedy", "ar greedy"])
    second = json.loads(out.read_text())["rows"]
    assert second["greedy"] == first["rows"]["greedy"]
    assert set(second) == {"greedy", "mh raw", "ar greedy"}
    capsys.readouterr()
    with pytest.raises(SystemExit):
        translate.main([*call[:-3], "4", "--out", str(out)])
    assert "has other settings" in capsys.readouterr().err


def test_every_method_has_a_row_and_sentences_are_of_mixed_lengths():
    assert {method.name for method in translate.METHODS.values()} == set(METHODS)
    lengths = {len(line.split()) for line in translate.sources(16)}
    assert len(lengths) > 8
    assert translate.sources(65)[64] == translate.sources(1)[0]
