"""Studies on models that take no time: what they measure, and that their pages are written."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from experiments.studies import (
    default_target,
    effective,
    evidence,
    fill_energies,
    mixing,
    population_verdicts,
    proteins,
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
    Gap,
)

import maskov
from maskov.models.scorer import Scorer
from small import tiny_bert

SENTENCE = "the old man and the old house and the man sat in the city"


@pytest.fixture
def main(monkeypatch):
    """Run a study as a command."""

    def run(study, *words):
        monkeypatch.setattr(sys, "argv", ["study", *map(str, words)])
        study.main()

    return run


# Evidence


@pytest.mark.parametrize(
    "toy",
    [
        population_verdicts.ising(7, 1.3), population_verdicts.ridge(7, 0.2, 1.5, 0.4),
        population_verdicts.island(7, 0.3, 4, 3.0),
    ],
    ids=lambda toy: toy.name,
)  # fmt: skip
def test_toys_have_the_log_z_that_they_say_and_populations_find_it(toy):
    every = np.array([[n >> k & 1 for k in range(7)] for n in range(2**7)], dtype=np.int8)
    start = np.log(np.where(every, toy.share, 1 - toy.share)).sum(1)
    assert np.logaddexp.reduce(start + toy.gain(every)) == pytest.approx(toy.log_z)
    found = population_verdicts.run(toy, 200, 10, 5, populations=8, seed=0).log_z
    assert abs(found.value - toy.log_z) < 4.5 * found.error


def test_text_is_measured_once_and_the_page_has_every_target(tmp_path, monkeypatch, main):
    texts, out = tmp_path / "held-out-4.txt", tmp_path / "out"
    texts.write_text("felt black last question\nquestion black felt last\n")
    monkeypatch.setattr(evidence, "TARGETS", (("norm", 1.0),))
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


# Blanks


def test_scores_of_one_token_are_the_enumerated_ones():
    # One word more than the likeliest that are added up, so that the draws of the rest are exact.
    model = tiny_bert("a b c d e f g h i j k l m n o")
    words = [model.encode(letter)[0] for letter in "abcdefghijklmno"]
    found = fill_energies.log_scores(Gap([*words[:4], *words[:2]], 2, 1), Scorer(model), 0)
    texts = [model.decode([*words[:2], word, words[3], *words[:2]]) for word in words]
    for name in ("norm", "raw", "0.5*ordered(orders=8)+0.5*norm"):
        weights = fill_energies.ENERGIES[name]
        energies = torch.zeros(len(texts), dtype=torch.float64)
        for part in weights.keys() & {"norm", "raw"}:
            scores = maskov.score(model, texts, part)
            energies += weights[part] * torch.tensor([one.energy for one in scores]).double()
        if "ordered" in weights:
            (fills,) = maskov.infill(model, "a b [MASK] d a b").fills()
            own = {fill.words[0]: fill.energy for fill in fills}
            energies += weights["ordered"] * torch.tensor([own[one] for one in "abcdefghijklmno"])
        assert found[name] == pytest.approx(float((-energies).log_softmax(0)[2]), abs=1e-6)


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


# Mixing


def test_rows_reach_the_energy_that_the_first_default_has_after_so_many_passes():
    drops = {mixing.FIRST_DEFAULT: [0.0, -1.0, -2.0, -9.0], "spans of 1 to 3": [-1.0, -2.0, -3.0]}
    rows = [
        {"row": name, "energy": "raw", "length": 20, "mean_energy": energies,
         "passes": [100.0, 200.0, 300.0, 400.0][: len(energies)]}
        for name, energies in drops.items()
    ]  # fmt: skip
    mixing.compare(rows, 300)
    assert [row["reached"] for row in rows] == [300.0, 200.0]


@pytest.mark.slow
def test_effective_samples_have_a_line_for_each_target(tmp_path):
    words = ["--out", str(tmp_path), "--model", "untrained", "--chains", "3", "--epochs", "60"]
    effective.main(["sample", *words, "--targets", "free, 5 tokens", "--energies", "norm"])
    effective.main(["page", *words])
    table = json.loads((tmp_path / "effective.json").read_text())["table"]
    assert [(line["energy"], line["target"]) for line in table] == [("norm", "free, 5 tokens")]
    assert "| E_norm, free, 5 tokens | 1 |" in (tmp_path / "README.md").read_text()


def test_proteins_are_measured_at_equal_passes(tmp_path):
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 4]])
    assert proteins.distance(tokens) == pytest.approx((1 + 1 + 2) / 3 / 4)
    sites, default = "single sites", "spans, burn-in with 4 groups (the default)"
    words = f"--model untrained --chains 2 --length 7 --points 10 30 --out {tmp_path} --rows"
    proteins.main([*words.split(), sites])
    proteins.main([*words.split(), default])
    rows = json.loads((tmp_path / "proteins.json").read_text())["rows"]
    assert [row["row"] for row in rows] == [sites, default]
    for row in rows:
        spent = [point["passes"] for point in row["points"]]
        assert spent[0] >= 10
        assert spent[-1] >= 30
        assert all(point["energy"] > 0 for point in row["points"])
    assert rows[0]["points"][0]["passes"] <= 10 + 2 * 7
    assert f"| {default} |" in (tmp_path / "README.md").read_text()
    with pytest.raises(SystemExit, match="other settings"):
        proteins.main([*words.split(), sites, "--seed", "1"])


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
    good = {"passes": 5000.0, "perplexity": 55.0, "repeated": 0.1, "penalty": 0.0}
    worse = [
        good | {"passes": 90000.0, "repeated": 0.0},
        good | {"perplexity": 70.0},
        good | {"penalty": 1.0, "repeated": 0.0},
    ]
    assert default_target.chosen([*worse, good], 50.0) == good
    assert default_target.chosen(worse, 50.0) is None
