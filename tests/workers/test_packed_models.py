"""A model that was sent away is the model that was sent."""

import pickle

import pytest
import torch

import maskov
from maskov.errors import InputError
from maskov.models.packed import PickledModel
from maskov.models.scorer import Scorer
from maskov.types import Sequences
from small import random_table
from tiny_models import build

TOKENS = torch.tensor([[6, 7, 8, 6], [8, 8, 6, 7]])


def _sent(model):
    return pickle.loads(pickle.dumps(PickledModel.of(model))).unpack(torch.device("cpu"))


def test_a_model_from_a_file_answers_with_the_same_bits(tmp_path):
    """A mapped file has its weights at any address, and odd ones round differently."""
    model = maskov.load(build("bert", tmp_path), "cpu")
    assert not any(value.data_ptr() % 64 for value in model.checkpoint.weights.values())
    sequences = Sequences(TOKENS, torch.tensor([4, 4]))
    one, other = (Scorer(each).cache(sequences) for each in (model, _sent(model)))
    assert torch.equal(one.hidden, other.hidden)
    for tied in (model.network, _sent(model).network):
        assert tied.get_input_embeddings().weight is tied.get_output_embeddings().weight


def test_a_table_travels_as_it_is_and_what_cannot_be_sent_is_one_sentence():
    model = random_table()
    assert _sent(model).fingerprint() == model.fingerprint()
    model.secret = lambda: None
    with pytest.raises(InputError, match="without workers"):
        PickledModel.of(model)
