"""A model that was sent away is the model that was sent."""

import pickle

import pytest
import torch

import maskov
from maskov.errors import InputError
from maskov.models.packed import PickledModel
from maskov.models.scorer import Scorer
from maskov.types import Sequences
from small import random_table, tiny_bert
from tiny_models import build
from tiny_translation import SOURCES, save

TOKENS = torch.tensor([[6, 7, 8, 6], [8, 8, 6, 7]])


def _sent(model):
    return pickle.loads(pickle.dumps(PickledModel.of(model))).unpack(torch.device("cpu"))


@pytest.mark.parametrize("precision", [torch.float64, torch.float32, torch.bfloat16])
def test_a_masked_model_answers_with_the_same_bits(precision):
    whole = torch.float64 if precision == torch.float64 else torch.float32
    model = tiny_bert("red green blue white", whole)
    if precision == torch.bfloat16:
        model = model.in_precision("bfloat16")
    there = _sent(model)
    assert there.fingerprint() == model.fingerprint()
    assert (there.precision, there.name, there.caution) == (
        model.precision, model.name, model.caution,
    )  # fmt: skip
    sequences = Sequences(TOKENS, torch.tensor([4, 4]))
    one, other = (Scorer(each).cache(sequences) for each in (model, there))
    assert torch.equal(one.hidden, other.hidden)
    assert torch.equal(one.log_normaliser, other.log_normaliser)


def test_a_model_from_a_file_answers_with_the_same_bits(tmp_path):
    """A mapped file has its weights at any address, and odd ones round differently."""
    model = maskov.load(build("bert", tmp_path), "cpu")
    assert not any(value.data_ptr() % 64 for value in model.checkpoint.weights.values())
    sequences = Sequences(TOKENS, torch.tensor([4, 4]))
    one, other = (Scorer(each).cache(sequences) for each in (model, _sent(model)))
    assert torch.equal(one.hidden, other.hidden)
    for tied in (model.network, _sent(model).network):
        assert tied.get_input_embeddings().weight is tied.get_output_embeddings().weight


def test_a_translation_model_has_its_sources_with_it(tmp_path):
    model = maskov.load(save(tmp_path / "tiny"), "cpu").given(SOURCES)
    there = _sent(model)
    assert there.sources.texts == model.sources.texts
    assert torch.equal(there.sources.states, model.sources.states)


def test_a_table_travels_as_it_is_and_what_cannot_be_sent_is_one_sentence():
    model = random_table()
    assert _sent(model).fingerprint() == model.fingerprint()
    model.secret = lambda: None
    with pytest.raises(InputError, match="without workers"):
        PickledModel.of(model)
