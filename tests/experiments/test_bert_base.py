"""The BERT-base-sized run at toy size: trained, measured, and tabulated in one call."""

import json

import pytest
import torch
from experiments.lib.settings import SETTINGS
from experiments.studies import bert_base

from tiny_experiments import TINY

WORDS = "the cat sat on a mat and the dog ran to an old house by the sea".split()  # noqa: SIM905


@pytest.mark.slow
def test_training_and_tables_in_one_call_that_can_be_repeated(tmp_path, monkeypatch, capsys):
    sentences = tmp_path / "sentences.txt"
    lines = [" ".join(WORDS[n % 7 : n % 7 + 8]) + " ." for n in range(200)]
    sentences.write_text("\n".join(lines) + "\n")
    monkeypatch.setitem(SETTINGS, "quick", TINY)
    words = [str(sentences), "--weights", str(tmp_path / "w"), "--out", str(tmp_path / "out")]
    words += ["--steps", "6", "--shape", "modern-64x2", "--vocabulary", "60", "--setting", "quick"]
    words += ["--batch-tokens", "256", "--held-out", str(sentences), "--held-out-most", "20"]
    words += ["--device", "cpu"]
    with torch.random.fork_rng():
        bert_base.main(words)
    training = json.loads((tmp_path / "out" / "training.json").read_text())
    assert training["recipe"]["shape"] == "modern-64x2"
    assert training["held_out"]["sentences"] == 20
    table = json.loads((tmp_path / "out" / "table2.json").read_text())
    assert table["complete"]
    used = {cell["models"]["base"]["fingerprint"] for cell in table["cells"].values()}
    assert used == {training["fingerprint"]}
    missing = json.loads((tmp_path / "out" / "table4.json").read_text())["missing"]
    assert missing == ["translation, deg", "translation, raw", "translation, norm", "mask-predict"]
    before = (tmp_path / "out" / "table2.json").read_bytes()
    capsys.readouterr()
    bert_base.main(words)
    assert "step" not in capsys.readouterr().out
    assert (tmp_path / "out" / "table2.json").read_bytes() == before
