"""Tokenizers that do not fit their model, or that never end: refused when the model is loaded."""

import json
import os
import shutil
from pathlib import Path

import pytest

import maskov
import tiny_models
from maskov import ModelError


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return tiny_models.build("modernbert", tmp_path_factory.mktemp("model"))


@pytest.fixture
def copy(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def _edit(folder: Path, change) -> None:
    file = folder / "tokenizer.json"
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def _larger(data) -> None:
    words = data["model"]["vocab"]
    for extra in range(20):
        words[f"Ġextra{extra}"] = len(words)


def test_a_tokenizer_larger_than_the_model_is_refused(copy):
    _edit(copy, _larger)
    with pytest.raises(ModelError, match="has tokens up to"):
        maskov.load(copy, "cpu")


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "tokenizer_config.json"])
def test_a_pipe_in_a_model_folder_is_refused(name, copy):
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(ModelError, match=rf"{name}' is not a regular file"):
        maskov.load(copy, "cpu")


def _split(pattern: str):
    def change(data):
        data["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                 "invert": False},
                data["pre_tokenizer"],
            ],
        }  # fmt: skip

    return change


def _replace(pattern: str):
    def change(data):
        data["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}

    return change


@pytest.mark.parametrize("place", [_split, _replace], ids=["split", "replace"])
@pytest.mark.parametrize("pattern", [r"(?:a|a)*$", r"(a+)+$", "a?" * 60 + "$"])
def test_a_match_that_is_given_up_is_one_sentence(place, pattern, copy):
    _edit(copy, place(pattern))
    model = maskov.load(copy, "cpu")
    with pytest.raises(ModelError, match=r"\Athe tokenizer of .* cannot read a text: .*\Z"):
        maskov.score(model, ["a" * 120 + "!"])
