"""The models that ship: small enough, loadable, and as good as their cards say."""

from __future__ import annotations

import pytest
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

import maskov
from maskov import shipped
from maskov.models import DEFAULT_JUDGE, DEFAULT_MODEL

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


def test_the_defaults_are_the_shipped_ones():
    assert (DEFAULT_MODEL, DEFAULT_JUDGE) == ("wiki-small", "wiki-judge")


@pytest.mark.parametrize("name", ["wiki-small", "wiki-judge"])
def test_a_shipped_model_takes_at_most_24_mebibytes(name):
    files = list((shipped.ROOT / name).iterdir())
    assert sum(file.stat().st_size for file in files) <= 24 * 2**20
    weights = (shipped.ROOT / name / "model.safetensors").stat().st_size
    assert next(one for one in shipped.shipped() if one.name == name).bytes == weights


def test_transformers_alone_loads_them():
    AutoModelForMaskedLM.from_pretrained(shipped.ROOT / "wiki-small")
    AutoModelForCausalLM.from_pretrained(shipped.ROOT / "wiki-judge")


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
