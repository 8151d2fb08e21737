"""A fingerprint tells two models apart if and only if their answers can differ."""

import shutil

import pytest
from safetensors.torch import load_file, save_file

import maskov
import tiny_models


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.build("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture
def copy(original, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(original, tmp_path / "bert")


def load(folder):
    return maskov.load(str(folder), "cpu")


def test_same_files_have_the_same_fingerprint_wherever_they_lie(original, copy):
    assert load(original).fingerprint() == load(original).fingerprint()
    assert load(copy).fingerprint() == load(original).fingerprint()


def test_scoring_leaves_the_fingerprint_alone(original):
    model = load(original)
    before = model.fingerprint()
    maskov.score(model, ["the cat sat"])
    assert model.fingerprint() == before


def test_one_weight_changes_it(original, copy):
    weights = copy / "model.safetensors"
    state = load_file(weights)
    state["cls.predictions.bias"][3] += 1e-6
    save_file(state, weights, metadata={"format": "pt"})
    assert load(copy).fingerprint() != load(original).fingerprint()


def test_two_words_that_change_places_change_it(original, copy):
    tokenizer = copy / "tokenizer.json"
    text = tokenizer.read_text(encoding="utf-8")
    swapped = text.replace('"cat"', '"?"').replace('"dog"', '"cat"').replace('"?"', '"dog"')
    assert swapped != text
    tokenizer.write_text(swapped, encoding="utf-8")
    assert load(copy).encode("cat") == load(original).encode("dog")
    assert load(copy).fingerprint() != load(original).fingerprint()


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"num_attention_heads": 4}], ids=str)
def test_same_weights_used_otherwise_change_it(original, copy, change):
    tiny_models.edit_config(copy, **change)
    energies = [
        maskov.score(load(folder), ["the cat sat"])[0].energy for folder in (original, copy)
    ]
    assert abs(energies[0] - energies[1]) > 1e-3
    assert load(copy).fingerprint() != load(original).fingerprint()
