"""Known families are read from their files as transformers reads them, without importing it."""

import subprocess
import sys
from itertools import product

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

import maskov
import tiny_models
from maskov.models.base import Queries
from maskov.models.checkpoint import MaskedCheckpoint, tokenizer_data
from maskov.models.tokens import PlainTokenizer
from maskov.shipped import folder_of

KNOWN = ("bert", "distilbert", "roberta", "xlm-roberta", "camembert", "electra", "modernbert")


def by_transformers(folder, dtype=torch.float32):
    network = AutoModelForMaskedLM.from_pretrained(folder, dtype=dtype)
    return maskov.HuggingFaceModel(network, AutoTokenizer.from_pretrained(folder), "theirs")


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("wiki-any", torch.float32),
        *product(KNOWN, (torch.float32, torch.float64)),
    ],
    ids=str,
)
def test_same_fingerprint_and_same_numbers(family, dtype, tmp_path):
    shipped = folder_of(family)
    folder = shipped or tiny_models.build(family, tmp_path, torch.float16)
    ours = maskov.HuggingFaceModel.load(str(folder), dtype=dtype)
    theirs = by_transformers(folder, dtype)
    assert isinstance(ours.checkpoint, MaskedCheckpoint)
    assert ours.fingerprint() == theirs.fingerprint()
    assert (ours.max_length, ours.mask_id) == (theirs.max_length, theirs.mask_id)
    tokens = torch.tensor([[7, 8, 9, 10], [9, 7, 8, 8]])
    queries = Queries(tokens, torch.tensor([4, 3]), tokens == 8)
    assert torch.equal(ours.logits(ours.hidden(queries)), theirs.logits(theirs.hidden(queries)))
    ids = torch.tensor([[7, ours.mask_id, 9]])
    assert torch.equal(ours.network(input_ids=ids).logits, theirs.network(input_ids=ids).logits)
    assert ours.network.state_dict().keys() == ours.checkpoint.weights.keys()


TEXTS = ["The  cat sat, [MASK] x!", "", "naïve Ünïcode \u4e2d\u6587 ##ing", "a" * 300]


@pytest.mark.parametrize("name", ["wiki-any", "deroen-small"])
def test_tokenizers_of_shipped_models(name):
    folder = folder_of(name)
    ours, theirs = PlainTokenizer.read(folder), AutoTokenizer.from_pretrained(folder)
    assert tokenizer_data(ours) == tokenizer_data(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.model_max_length == theirs.model_max_length
    for special in (True, False):
        assert ours(TEXTS, add_special_tokens=special) == {
            "input_ids": theirs(TEXTS, add_special_tokens=special)["input_ids"]
        }
    for text in TEXTS:
        options = {"add_special_tokens": False, "return_offsets_mapping": True}
        mine, coded = ours(text, **options), theirs(text, **options)
        assert mine == {key: coded[key] for key in ("input_ids", "offset_mapping")}
        assert ours.decode(mine["input_ids"]) == theirs.decode(mine["input_ids"])
        names = theirs.convert_ids_to_tokens(mine["input_ids"])
        assert ours.convert_ids_to_tokens(mine["input_ids"]) == names


@pytest.mark.parametrize(
    "settings",
    [
        {"transformers_version": "4.57.0"},
        {"hidden_act": "mish"},
        {"num_hidden_layers": 1, "intermediate_size": 25},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_transformers_reads_what_is_unusual(settings, tmp_path):
    folder = tiny_models.build("bert", tmp_path)
    assert MaskedCheckpoint.read(folder, torch.float32) is not None
    tiny_models.edit_config(folder, **settings)
    assert MaskedCheckpoint.read(folder, torch.float32) is None


def test_transformers_reports_missing_weights(tmp_path):
    folder = tiny_models.build("bert", tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["cls.predictions.transform.dense.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(maskov.ModelError, match="lack cls"):
        maskov.load(folder)


SLOW = ("transformers", "scipy.stats", "pandas", "matplotlib", "arviz_base", "torch._dynamo")


def test_scoring_with_the_default_model_imports_nothing_slow():
    code = f"""
import atexit, sys
atexit.register(lambda: print([name for name in {SLOW} if name in sys.modules]))
import maskov
maskov.score(maskov.load(), ['a b c'])
from maskov.cli import main
main(['score', 'a b c'])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
