"""Studies on models that take no time: what they measure, and that their pages are written."""

import json
import math
import sys

import numpy as np
import pytest
from experiments.studies import (
    default_target,
    default_text,
    evidence,
    restoration,
)
from experiments.studies.restoration import (
    BEAM,
    EVEN,
    FILL_MASK,
    INFILL,
    MASK_PREDICT,
    SMALL,
    SOUND,
)

SENTENCE = "the old man and the old house and the man sat in the city"


@pytest.fixture
def main(monkeypatch):
    """Run a study as a command."""

    def run(study, *words):
        monkeypatch.setattr(sys, "argv", ["study", *map(str, words)])
        study.main()

    return run


def test_text_is_measured_once_and_the_page_has_every_target(tmp_path, monkeypatch, main):
    texts, out = tmp_path / "held-out-4.txt", tmp_path / "out"
    texts.write_text("felt black last question\nquestion black felt last\n")
    monkeypatch.setattr(evidence, "TARGETS", (("norm", 1.0),))
    monkeypatch.setattr("maskov.likelihood._DRAWS", 64)
    ask = ("text", "--model", "untrained", "--texts", texts, "--out", out, "--particles", 4)
    main(evidence, *ask, "--populations", 2)
    found = (out / "untrained-4.json").read_text()
    main(evidence, *ask, "--populations", 2)
    assert (out / "untrained-4.json").read_text() == found
    targets = json.loads(found)["targets"]
    assert targets["ordered@1"]["lengths"][0]["log_z"] == 0
    main(evidence, "page", "--model", "untrained", "--out", out)
    page = (out / "README.md").read_text()
    assert "sentences of 4 tokens" in page
    assert f"{targets['ordered(orders=8)@1']['nats_per_token']:.3f}" in page


def test_every_method_of_restoration_is_measured_and_the_page_is_written(tmp_path, main):
    (tmp_path / "texts").write_text(f"= title =\n{SENTENCE} . {SENTENCE} . {SENTENCE} .\n")
    common = ("--out", tmp_path / "out", "--model", "untrained")
    for number in (1, 2):
        asked = f"1:{number},2:{number},0:{number}"
        main(restoration, "measure", tmp_path / "texts", "--gaps", asked, *common)
        lines = (tmp_path / "out" / "untrained.jsonl").read_text().splitlines()
        gaps = [json.loads(line) for line in lines]
        # The second call continues after the gaps of the first.
        assert [(one["kind"], one["number"]) for one in gaps] == [
            (kind, n) for n in range(number) for kind in (0, 1, 2)
        ]
    unknown, one, two = (gap["methods"] for gap in gaps[:3])
    assert list(unknown) == [FILL_MASK, BEAM, EVEN, INFILL]
    assert sum(unknown[INFILL]["lengths"]) == pytest.approx(1, abs=1e-3)
    assert list(two) == [FILL_MASK, BEAM, MASK_PREDICT, SOUND, SMALL, INFILL]
    assert one[INFILL]["log_p"] == pytest.approx(one[FILL_MASK]["log_p"], abs=2e-4)
    # One of the two orders of the mixture is that of the beam.
    assert two[INFILL]["log_p"] > two[BEAM]["log_p"] - 2.1
    for row in (row for each in (unknown, one, two) for row in each.values()):
        assert row["passes"] is None or row["passes"] > 0
        assert row.get("log_p", -1) <= 0
        assert 0 <= row.get("above", 0) <= 1.001
    main(restoration, "page", *common)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "2 of 1 token, 2 of 2 tokens, 2 of unknown length" in page
    assert f"| 2 | {MASK_PREDICT} | 2 |" in page


def test_the_default_target_is_weighed_and_chosen_by_its_rule():
    assert default_target.repeated("The cat saw the dog.") == (1, 5)
    rows = np.array([[30.0, 10, 1, 10], [20.0, 10, 0, 10]])
    # One of two repeats a word, which the penalty of log 2 counts as the energy does.
    for texts, energy, weights in (
        (["a cat ran", "a cat ran"], np.log([1.0, 2.0]), (1.0, 0.0)),
        (["a cat ran", "a cat a"], np.zeros(2), (1.0, math.log(2))),
    ):
        found = default_target.measured(texts, rows, energy, *weights)
        assert found["effective_share"] == pytest.approx(0.9)
    assert found["distinct_2"] == pytest.approx(3 / 4)  # "a cat" twice
    # The likelier state holds two thirds, and leaves half of the time that the other is proposed.
    assert found["accepted"] == pytest.approx(2 / 3 * 3 / 4 + 1 / 3)
    assert found["perplexity"] == pytest.approx(math.exp((2 * 30 + 20) / 30))
    assert found["repeated"] == pytest.approx(2 / 30)
    held_out = {"perplexity": 50.0, "repeated": 0.06, "distinct_2": 0.9}
    good = {"passes": 5000.0, "tilt": 0.05, "perplexity": 55.0, "repeated": 0.07, "distinct_2": 0.9}
    worse = [
        good | {"passes": 9000.0},
        *(good | {"passes": 10.0} | one for one in (
            {"tilt": 0.0}, {"perplexity": 61.0}, {"perplexity": 39.0}, {"repeated": 0.08},
            {"distinct_2": 0.85},
        )),
    ]  # fmt: skip
    assert default_target.chosen([*worse, good], held_out) == good
    assert default_target.chosen(worse[1:], held_out) is None


def test_copies_are_runs_of_eight_words_and_the_page_has_every_row(tmp_path):
    training = tmp_path / "training.txt"
    training.write_text("So, the old man and the old house sat in the city.\nA cat ran.\n")
    texts = [
        "the old man and the old house sat .",
        "the old man and the old house ran",
        "a cat ran",
    ]
    assert default_text.copied({"default": texts}, training) == {"default": [True, False, False]}
    measures = {"perplexity": [50.26, 2.04], "copied": [1 / 3, 0.27]}
    page = default_text.page({"default": {"texts": texts, "measures": measures}})
    row = "| the default target, wiki-any | 3 | 50.3 ± 2.0 |  |  |  |  | 0.333 ± 0.270 |"
    assert row in page.splitlines()
