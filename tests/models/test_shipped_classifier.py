"""The classifier that ships: found by name, offline, and able to tell its labels apart."""

from __future__ import annotations

import json
import math

import pytest
import torch
from transformers import AutoModelForSequenceClassification

import maskov
from maskov import shipped
from maskov.energies import parse_energy
from maskov.energies.networks import Loading
from maskov.types import Sequences

NEWS = "police said on tuesday that two people were arrested after the explosion."
ARTICLE = "the species was first described in 1758 and is native to southern europe."
FOLDER = shipped.ROOT / "wiki-genre"


@pytest.fixture(scope="module")
def model():
    return maskov.load("wiki-small", "cpu")


def probability(model, label, text):
    energy = parse_energy(
        f"classifier(wiki-genre, label={label})", loading=Loading(allow_download=False)
    )
    ids = torch.tensor([model.encode(text)])
    return math.exp(-float(energy(model, Sequences(ids, torch.tensor([ids.shape[1]])))))


def test_it_is_small_and_as_described():
    about = next(one for one in shipped.shipped() if one.name == "wiki-genre")
    weights = (FOLDER / "model.safetensors").stat().st_size
    assert (about.kind, about.bytes) == ("classifier", weights)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 4 * 2**20
    network = AutoModelForSequenceClassification.from_pretrained(FOLDER)
    assert sum(weight.numel() for weight in network.parameters()) == about.parameters
    assert network.config.id2label == {0: "encyclopedia", 1: "news"}


def test_its_card_repeats_what_was_measured():
    about = json.loads((FOLDER / "about.json").read_text())
    card = (FOLDER / "README.md").read_text()
    assert f"| accuracy | {about['quality']['held-out accuracy']} |" in card
    assert "CC BY 2.5" in card
    assert "CC BY-SA" in card


def test_its_tokens_are_those_of_the_default_model():
    name = "tokenizer.json"
    assert (FOLDER / name).read_bytes() == (shipped.ROOT / "wiki-small" / name).read_bytes()


def test_the_command_lists_it(call):
    rows = [json.loads(line) for line in call("models", "--json")[1].splitlines()]
    assert ("wiki-genre", "classifier") in [(row["name"], row["kind"]) for row in rows]


def test_news_and_articles_are_told_apart(model):
    assert probability(model, "news", NEWS) > 0.9
    assert probability(model, "encyclopedia", ARTICLE) > 0.9
    both = probability(model, "news", NEWS) + probability(model, "encyclopedia", NEWS)
    assert both == pytest.approx(1, abs=1e-6)


def test_a_wrong_label_is_refused_with_those_that_exist(model):
    with pytest.raises(maskov.InputError, match=r"no label 'sport'; it has encyclopedia, news\."):
        probability(model, "sport", NEWS)


def test_models_of_other_kinds_are_refused():
    with pytest.raises(maskov.ModelError, match=r"'wiki-small' is a masked .* not a classifier"):
        parse_energy("classifier(wiki-small, label=news)")
    with pytest.raises(maskov.ModelError, match=r"'wiki-genre' is a classifier .* not a causal"):
        parse_energy("autoregressive(wiki-genre)")
    with pytest.raises(maskov.ModelError, match=r"'wiki-genre' is a classifier .* not a masked"):
        maskov.load("wiki-genre", "cpu")


def test_scores_name_the_experts_beside_the_terms():
    model, text = maskov.load("untrained", "cpu"), "red green blue"
    plain = maskov.score(model, [text], maskov.parse_energy("norm"))[0]
    expert = "classifier(wiki-genre, label=news)"
    both = maskov.score(model, [text], maskov.parse_energy(f"norm+2*{expert}"))[0]
    assert both.terms == pytest.approx(plain.terms)
    assert list(both.experts) == [expert]
    assert both.experts[expert] > 0
    assert both.energy == pytest.approx(plain.energy + both.experts[expert])
    assert "experts" not in plain.to_json()
