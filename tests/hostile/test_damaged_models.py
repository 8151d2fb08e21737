"""Model folders that are missing, cut short, of the wrong shape, or that carry code."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recipes.translation.fairseq import SPECIAL, convert, read_dictionary
from safetensors.torch import load_file, save_file

import maskov
from maskov import MaskovError, ModelError
from maskov.models.conditional.checkpoint import Merges
from mutations import changed, damaged, examples, or_refused
from small import tiny_bert
from tiny_translation import save


class Evil:
    """Pickled, it would run a command when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "masked"
    model = tiny_bert("red green blue", torch.float32)
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def conditional(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "conditional")


def _copy(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def _loads_or_says_why(folder: Path) -> None:
    with or_refused(MaskovError, naming=[folder]):
        _loads(folder)


def _loads(folder: Path) -> None:
    """What is loaded has the weights that the file holds, and reads text into its vocabulary."""
    model = maskov.load(folder, "cpu")
    weights = load_file(folder / "model.safetensors")
    own = model.network.state_dict()
    assert weights.keys() & own.keys()
    for name in weights.keys() & own.keys():
        assert torch.equal(own[name].nan_to_num(), weights[name].to(own[name]).nan_to_num())
    if isinstance(model, maskov.HuggingFaceModel):
        ids = model.encode("red green")
        assert all(0 <= token < len(model.forbidden) for token in ids)


@pytest.mark.parametrize("kind", ["masked", "conditional"])
def test_whole_folders_are_loaded(kind, request):
    _loads(request.getfixturevalue(kind))


@pytest.mark.parametrize("kind", ["masked", "conditional"])
@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
@examples(10)
@given(data=st.data())
def test_any_damage_is_one_sentence(kind, file, data, request, tmp_path):
    folder = request.getfixturevalue(kind)
    copy = _copy(folder, tmp_path / "copy")
    (copy / file).write_bytes(data.draw(damaged((folder / file).read_bytes())))
    _loads_or_says_why(copy)


@pytest.mark.parametrize("kind", ["masked", "conditional"])
@examples(15)
@given(data=st.data())
def test_any_config_is_one_sentence(kind, data, request, tmp_path):
    folder = request.getfixturevalue(kind)
    copy = _copy(folder, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(data.draw(changed(config))))
    _loads_or_says_why(copy)


@pytest.mark.parametrize("kind", ["masked", "conditional"])
@pytest.mark.parametrize("size", [10**5, 10**10, 2**70])
def test_a_network_larger_than_its_weights_is_refused_before_it_is_built(
    kind, size, request, tmp_path
):
    folder = request.getfixturevalue(kind)
    config = json.loads((folder / "config.json").read_text())
    for name in (key for key, value in config.items() if type(value) is int and value > 1):
        copy = _copy(folder, tmp_path / "copy")
        (copy / "config.json").write_text(json.dumps(config | {name: size}))
        with pytest.raises(ModelError):
            maskov.load(copy, "cpu")


@pytest.mark.parametrize("kind", ["masked", "conditional"])
def test_weights_of_another_shape_are_refused(kind, request, tmp_path):
    copy = _copy(request.getfixturevalue(kind), tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    name = max(weights, key=lambda key: weights[key].numel())
    weights[name] = weights[name][:-1].contiguous()
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError):
        maskov.load(copy, "cpu")


@pytest.mark.parametrize("kind", ["masked", "conditional"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_missing_files_are_refused(kind, file, request, tmp_path):
    copy = _copy(request.getfixturevalue(kind), tmp_path / "copy")
    (copy / file).unlink()
    with pytest.raises(ModelError):
        maskov.load(copy, "cpu")


@pytest.mark.parametrize("whole", [True, False], ids=["torch's format", "a plain pickle"])
def test_pickles_with_code_are_refused_and_it_is_not_run(whole, masked, tmp_path):
    mark = tmp_path / "run by somebody"
    copy = _copy(masked, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    if whole:
        torch.save({"weight": Evil(mark)}, copy / "pytorch_model.bin")
    else:
        (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(ModelError):
        maskov.load(copy, "cpu")
    assert not mark.exists()


def test_a_fairseq_checkpoint_with_code_is_refused_and_it_is_not_run(tmp_path):
    mark = tmp_path / "run by somebody"
    (tmp_path / "dict.en.txt").write_text("a 1\n")
    torch.save({"args": Evil(mark), "model": {}}, tmp_path / "checkpoint_best.pt")
    with pytest.raises(ModelError, match="nothing in it was run"):
        convert(tmp_path, tmp_path / "out")
    assert not mark.exists()


@examples(25)
@given(data=st.data())
def test_any_fairseq_checkpoint_is_one_sentence(data, tmp_path):
    (tmp_path / "dict.en.txt").write_text("a 1\n")
    file = tmp_path / "checkpoint_best.pt"
    torch.save({"args": None, "model": {"encoder.embed_tokens.weight": torch.ones(2, 2)}}, file)
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    with pytest.raises(ModelError):
        convert(tmp_path, tmp_path / "out")


TEXT = st.binary(max_size=200) | st.text(max_size=200).map(str.encode)


@examples(40)
@given(content=TEXT | damaged(b"a 3\nbc 2\nred@@ 1\n"))
def test_any_dictionary_is_read_or_refused(content, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(content)
    with or_refused(ModelError, naming=[file]):
        words = read_dictionary(file)
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        assert words == [*SPECIAL, *(line.rpartition(" ")[0] for line in lines if line)]


@examples(40)
@given(content=TEXT | damaged(b"#version: 0.2\na b\nab c</w>\n"), word=st.text(min_size=1))
def test_any_codes_are_read_or_refused(content, word, tmp_path):
    """Whatever the merges are, the pieces of a word put together are the word."""
    file = tmp_path / "file"
    file.write_bytes(content)
    with or_refused(ModelError, naming=[file]):
        codes = Merges.read(file)
        for text in (word, "abc"):
            *begun, last = codes.split(text)
            assert all(piece.endswith("@@") for piece in begun)
            assert "".join(piece[:-2] for piece in begun) + last == text
