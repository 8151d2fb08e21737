"""The study that chose the default energy of fills, on a model that can be enumerated."""

import json

import pytest
import torch
from experiments.studies import fill_energies
from experiments.studies.restoration import Gap

import maskov
from maskov.models.scorer import Scorer
from small import tiny_bert

# One word more than the likeliest that are added up, so that the draws of the rest are exact.
MODEL = tiny_bert("a b c d e f g h i j k l m n o")


def test_scores_of_one_token_are_the_enumerated_ones():
    words = [MODEL.encode(letter)[0] for letter in "abcdefghijklmno"]
    gap = Gap([*words[:4], *words[:2]], 2, 1)
    found = fill_energies.log_scores(gap, Scorer(MODEL), 0)
    texts = [MODEL.decode([*words[:2], word, words[3], *words[:2]]) for word in words]
    for name in ("norm", "raw", "0.5*ordered(orders=8)+0.5*norm"):
        weights = fill_energies.ENERGIES[name]
        energies = torch.zeros(len(texts), dtype=torch.float64)
        for part in weights.keys() & {"norm", "raw"}:
            scores = maskov.score(MODEL, texts, part)
            energies += weights[part] * torch.tensor([one.energy for one in scores]).double()
        if "ordered" in weights:
            (fills,) = maskov.infill(MODEL, "a b [MASK] d a b").fills()
            own = {fill.words[0]: fill.energy for fill in fills}
            energies += weights["ordered"] * torch.tensor([own[one] for one in "abcdefghijklmno"])
        assert found[name] == pytest.approx(float((-energies).log_softmax(0)[2]), abs=1e-6)


def test_the_document_compares_every_energy_with_the_normalised_one(tmp_path):
    words = "the old man and the old house and the man sat in the city"
    (tmp_path / "texts").write_text(f"{words} . {words} . {words} .\n")
    fill_energies.main([str(tmp_path / "texts"), "--out", str(tmp_path / "out"),
                        "--model", "untrained", "--gaps", "1:2,2:3"])  # fmt: skip
    document = json.loads((tmp_path / "out" / "energies.json").read_text())
    assert document["gaps"] == {"1": 2, "2": 3}
    assert list(document["energies"]) == list(fill_energies.ENERGIES)
    assert document["energies"]["ordered(orders=8)"]["2"][1:] == [0, 0]
    assert all(score < 0 for rows in document["energies"].values() for score, _, _ in rows.values())
