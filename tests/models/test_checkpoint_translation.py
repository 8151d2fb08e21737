"""Translation models as folders: what is written is read, and damage is one sentence."""

from pathlib import Path

import pytest
import torch
from recipes.translation.folders import save_translation
from safetensors.torch import load_file

import maskov
from maskov import AutoregressiveTranslator, ConditionalModel, ModelError
from maskov.models.checkpoint import translation_folder
from maskov.models.network import load_translation
from tiny_translation import network, save, tokenizer

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path) -> Path:
    return save(tmp_path / "tiny")


def refusal(folder: Path) -> str:
    """Load a folder that cannot be; return the sentence."""
    with pytest.raises(ModelError) as caught:
        load_translation(folder, CPU, torch.float32)
    text = str(caught.value)
    assert text.isprintable()
    assert text.endswith(".")
    assert str(folder) in text
    return text


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_what_is_written_is_read(tmp_path, dtype, causal):
    plain = network(causal=causal, target_end=not causal, norm_first=causal)
    save_translation(tmp_path / "deep" / "tiny", plain, tokenizer(), dtype)
    assert {x.dtype for x in load_file(tmp_path / "deep/tiny/model.safetensors").values()} == {
        dtype
    }
    for wanted in (torch.float32, torch.float64):
        found, words = load_translation(tmp_path / "deep" / "tiny", CPU, wanted)
        assert found.shape == plain.shape
        assert words.get_vocab() == tokenizer().get_vocab()
        assert words.all_special_ids == tokenizer().all_special_ids
        for name, value in plain.state_dict().items():
            read = found.state_dict()[name]
            assert read.dtype == wanted
            assert torch.equal(read, value.to(dtype).to(wanted))
        assert not any(weight.requires_grad for weight in found.parameters())
        assert not found.training


def test_a_folder_says_what_it_is(folder, tmp_path):
    assert translation_folder(str(folder)) == folder
    for other in (tmp_path, tmp_path / "nowhere"):
        assert translation_folder(str(other)) is None
        assert "is not a translation model" in refusal(other)
    with pytest.raises(ModelError, match="is autoregressive"):
        maskov.load(save(tmp_path / "twin", causal=True), "cpu")
    with pytest.raises(ModelError, match="needs an autoregressive one"):
        AutoregressiveTranslator.load(folder, CPU, "tiny")
    with pytest.raises(maskov.InputError, match="drop the tokenizer"):
        maskov.load(folder, "cpu", tokenizer="bert")


@pytest.mark.parametrize("allow", [True, False])
def test_hub_names_of_translation_models(allow, tmp_path, monkeypatch):
    def cached(name, **changes):
        snapshot = save(tmp_path / f"models--somebody--{name}" / "snapshots" / "abc", **changes)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("abc")
        return snapshot

    masked, _ = cached("deen"), cached("twin", causal=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = maskov.load("somebody/deen", "cpu", allow_download=allow)
    assert (type(model), model.name) == (ConditionalModel, "somebody/deen")
    assert model.fingerprint() == maskov.load(masked, "cpu").fingerprint()
    energy = maskov.parse_energy("autoregressive(somebody/twin)")
    assert list(energy.models()) == ["somebody/twin"]
    with pytest.raises(ModelError, match="somebody/unheard-of"):
        maskov.load("somebody/unheard-of", "cpu", allow_download=allow)


def test_a_translation_model_is_downloaded_without_its_code(tmp_path, monkeypatch):
    snapshot = save(tmp_path / "there")
    asked = []

    def download(name, allow_patterns):
        asked.append((name, allow_patterns))
        if len(asked) > 1:
            raise ConnectionError("lost")
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(snapshot / file))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert type(maskov.load("somebody/deen", "cpu")) is ConditionalModel
    assert asked == [("somebody/deen", ["*.json", "*.safetensors", "*.txt"])]
    with pytest.raises(ModelError, match="'somebody/deen' could not be downloaded: lost"):
        maskov.load("somebody/deen", "cpu")
