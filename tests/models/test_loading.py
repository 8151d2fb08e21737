"""What loads, what is refused and with which sentence; a file's code is never run unasked."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

import maskov
import tiny_models


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    return tiny_models.build("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(bert_folder, tmp_path):
    """A BERT folder that a test may spoil."""
    return shutil.copytree(bert_folder, tmp_path / "bert")


def load(folder, **options):
    return maskov.load(str(folder), "cpu", **options)


def energy(model):
    return maskov.score(model, ["the cat sat"], maskov.Norm())[0].energy


def refusal(folder, **options):
    """Return the sentence with which a folder is refused."""
    with pytest.raises(maskov.ModelError) as caught:
        load(folder, **options)
    sentence = str(caught.value)
    assert str(folder) in sentence
    assert sentence.isprintable()  # no line breaks, and none of torch's colour codes
    assert len(sentence.replace(str(folder), "")) < 250
    return sentence


def test_pickled_weights_load_to_the_same_energies(folder):
    expected = energy(load(folder))
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    assert energy(load(folder)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "bert", '), "config"),
        (lambda folder: os.truncate(folder / "model.safetensors", 5000), "could not be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), "could not be loaded"),
    ],
)
def test_spoilt_folders_are_refused(folder, spoil, said):
    spoil(folder)
    assert said in refusal(folder)


@pytest.mark.parametrize("model_class", [
    hf.BertForSequenceClassification, hf.ElectraForPreTraining, hf.BertModel, hf.GPT2LMHeadModel,
])  # fmt: skip
def test_a_model_without_a_masked_lm_head_is_refused(tmp_path, model_class):
    tokenizer = tiny_models.bert()
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = model_class.config_class(vocab_size=len(tokenizer), intermediate_size=8, **shape)
    folder = tiny_models.save(lambda: model_class(config), tokenizer, tmp_path)
    # Transformers fills the missing head with random numbers, from the global generator.
    with torch.random.fork_rng(devices=[]):
        assert "is not a masked language model" in refusal(folder)


def test_tokenizer_without_a_mask_is_refused(folder, tmp_path):
    other = tmp_path / "other"
    tiny_models.gpt2().save_pretrained(other)
    (other / "config.json").write_text('{"model_type": "gpt2"}')
    assert "no mask token" in refusal(folder, tokenizer=str(other))


def remote_code(folder, marker):
    """Make a folder's config ask for code of its own, which writes a marker file."""
    code = f"open({str(marker)!r}, 'w').close()\n"
    code += "from transformers import BertConfig, BertForMaskedLM\n"
    code += "class Config(BertConfig):\n    model_type = 'of-its-own'\n"
    code += "class Model(BertForMaskedLM):\n    config_class = Config\n"
    (folder / "code_of_its_own.py").write_text(code)
    references = {"AutoConfig": "Config", "AutoModelForMaskedLM": "Model"}
    auto_map = {key: f"code_of_its_own.{value}" for key, value in references.items()}
    tiny_models.edit_config(folder, model_type="of-its-own", auto_map=auto_map)


@pytest.mark.parametrize("trusted", [False, True])
def test_code_of_a_folder_runs_only_when_trusted(folder, tmp_path, monkeypatch, trusted):
    cache = tmp_path / "cache"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(cache))
    monkeypatch.syspath_prepend(str(cache))
    marker = tmp_path / "marker"
    remote_code(folder, marker)
    if trusted:
        # Unknown to maskov by its name, so its own forward serves it.
        assert load(folder, trust_remote_code=True).head is None
    else:
        assert "if you trust it, say so with --trust-remote-code" in refusal(folder)
    assert marker.exists() == trusted


def test_random_weights_do_not_depend_on_other_threads():
    expected = maskov.load("untrained", "cpu").fingerprint()
    with ThreadPoolExecutor(4) as threads:
        loaded = threads.map(lambda _: maskov.load("untrained", "cpu").fingerprint(), range(4))
        assert set(loaded) == {expected}
