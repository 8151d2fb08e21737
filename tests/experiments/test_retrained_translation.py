"""Another way to train the translation model, and what it does to Figure 1 and Table 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.driver import write_page
from experiments.settings import SETTINGS

from experiments import retrained_translation
from tiny_experiments import TINY
from tiny_translation import save

TITLE = "trained in another way"


@pytest.fixture
def trainings(monkeypatch):
    """Stand in for the recipe, whose own tests train: note what it is asked, give random weights.

    An untrained length predictor would ask for the longest texts there are.
    """
    asked = []

    def train(words):
        asked.append(words)
        out = Path(words[words.index("--out") + 1])
        save(out / "model", seed=5)
        (out / "log.json").write_text(json.dumps({"device": "cpu", "log": [{"step": 3}]}))

    monkeypatch.setattr(retrained_translation.train, "main", train)
    monkeypatch.setitem(SETTINGS, "quick", TINY)
    return asked


@pytest.mark.slow
def test_training_and_studies_in_one_call_that_can_be_repeated(context, trainings, tmp_path):
    out, weights = tmp_path / "changed", tmp_path / "w"
    words = ["PAIRS", "--title", TITLE, "--weights", str(weights), "--out", str(out)]
    words += ["--data", str(context.data), "--setting", "quick", "--device", "cpu"]
    retrained_translation.main([*words, "--", "--smoothing", "0.1"])
    assert trainings == [["masked", "PAIRS", "--out", str(weights), "--smoothing", "0.1"]]
    training = json.loads((out / "training.json").read_text())
    assert training["title"] == TITLE
    assert training["log"] == [{"step": 3}]
    for name in retrained_translation.STUDIES:
        found = json.loads((out / f"{name}.json").read_text())
        assert found["complete"]
        models = [cell["models"]["de-en"] for cell in found["cells"].values()]
        assert {(one["name"], one["fingerprint"]) for one in models} == {
            ("changed", training["fingerprint"])
        }
    before = (out / "table1.json").read_bytes()
    retrained_translation.main([*words, "--", "--smoothing", "0.1"])
    assert len(trainings) == 1
    assert (out / "table1.json").read_bytes() == before


@pytest.mark.slow
def test_the_page_of_claims_calls_a_model_by_its_title(context, trainings, tmp_path):
    for name in ("one", "two"):
        retrained_translation.main(
            ["PAIRS", "--title", f"{TITLE} {name}", "--weights", str(tmp_path / f"w{name}"),
             "--out", str(tmp_path / name), "--data", str(context.data), "--setting", "quick",
             "--device", "cpu"]
        )  # fmt: skip
    first, second = tmp_path / "one", tmp_path / "two"
    page = write_page(first, tmp_path / "page.md", others=[first, second])
    assert page is not None
    text = page.read_text()
    assert f"| here | {TITLE} one | {TITLE} two |" in text
    assert text.index("(one/table1.md)") < text.index("(two/table1.md)")
