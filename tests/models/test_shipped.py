"""The models that ship: small enough, loadable, and as good as their cards say."""

import math

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
)

import maskov
from maskov import shipped
from maskov.energies import parse_energy
from maskov.energies.networks import Loading
from maskov.types import Sequences

REAL = [
    "the film was released in 2005 and received positive reviews from critics.",
    "he was born in london and moved to the united states with his family.",
    "the river flows south through the town before it reaches the sea.",
]
# The same words in another order: anything that has learned English tells them apart.
SHUFFLED = [" ".join(sorted(line.rstrip(".").split())) + " ." for line in REAL]


@pytest.fixture(scope="module")
def model():
    return maskov.load(device="cpu")


@pytest.mark.parametrize("name", ["wiki-small", "wiki-judge"])
def test_a_shipped_model_takes_at_most_24_mebibytes(name):
    files = list((shipped.ROOT / name).iterdir())
    assert sum(file.stat().st_size for file in files) <= 24 * 2**20
    weights = (shipped.ROOT / name / "model.safetensors").stat().st_size
    assert next(one for one in shipped.shipped() if one.name == name).bytes == weights


@pytest.mark.parametrize("energy", [maskov.Raw(), maskov.Norm()])
def test_sentences_are_more_probable_than_their_words_in_another_order(model, energy):
    real, shuffled = (maskov.score(model, lines, energy) for lines in (REAL, SHUFFLED))
    for one, other in zip(real, shuffled, strict=True):
        assert one.energy / len(one.tokens) < other.energy / len(other.tokens)


def test_the_judge_agrees():
    judge = maskov.Autoregressive("wiki-judge")
    real, shuffled = (maskov.score_autoregressive(judge, lines) for lines in (REAL, SHUFFLED))
    for one, other in zip(real, shuffled, strict=True):
        assert one.energy / len(one.tokens) + 1 < other.energy / len(other.tokens)


def test_the_default_model_samples_words(model):
    run = maskov.sample(model, schedule=maskov.Schedule(epochs=1), chains=2, length=8)
    assert model.head is not None
    for one in run.samples:
        assert len(one.ids) == 8
        assert not model.forbidden[one.ids].any()


# The classifier.

NEWS = "police said on tuesday that two people were arrested after the explosion."
ARTICLE = "the species was first described in 1758 and is native to southern europe."
FOLDER = shipped.ROOT / "wiki-genre"


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


def test_news_and_articles_are_told_apart(model):
    assert probability(model, "news", NEWS) > 0.9
    assert probability(model, "encyclopedia", ARTICLE) > 0.9
    both = probability(model, "news", NEWS) + probability(model, "encyclopedia", NEWS)
    assert both == pytest.approx(1, abs=1e-6)


def test_models_of_other_kinds_are_refused():
    with pytest.raises(maskov.ModelError, match=r"'wiki-small' is a masked .* not a classifier"):
        parse_energy("classifier(wiki-small, label=news)")
    with pytest.raises(maskov.ModelError, match=r"'wiki-genre' is a classifier .* not a causal"):
        parse_energy("autoregressive(wiki-genre)")
    with pytest.raises(maskov.ModelError, match=r"'wiki-genre' is a classifier .* not a masked"):
        maskov.load("wiki-genre", "cpu")
