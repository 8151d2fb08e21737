"""Tokenizers that do not fit their model, or that never end: refused when the model is loaded."""

import os
import shutil
from pathlib import Path

import pytest

import maskov
import tiny_models
from json_files import edited
from maskov import ModelError


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return tiny_models.build("modernbert", tmp_path_factory.mktemp("model"))


@pytest.fixture
def copy(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def test_a_tokenizer_larger_than_the_model_is_refused(copy):
    with edited(copy / "tokenizer.json") as data:
        words = data["model"]["vocab"]
        for extra in range(20):
            words[f"Ġextra{extra}"] = len(words)
    with pytest.raises(ModelError, match="has tokens up to"):
        maskov.load(copy, "cpu")


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "tokenizer_config.json"])
def test_a_pipe_in_a_model_folder_is_refused(name, copy):
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(ModelError, match=rf"{name}' is not a regular file"):
        maskov.load(copy, "cpu")


def _split(data, pattern: str) -> None:
    data["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": False},
            data["pre_tokenizer"],
        ],
    }  # fmt: skip


def _replace(data, pattern: str) -> None:
    data["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}


@pytest.mark.parametrize("place", [_split, _replace], ids=["split", "replace"])
@pytest.mark.parametrize("pattern", [r"(?:a|a)*$", r"(a+)+$", "a?" * 60 + "$"])
def test_a_match_that_is_given_up_is_one_sentence(place, pattern, copy):
    with edited(copy / "tokenizer.json") as data:
        place(data, pattern)
    model = maskov.load(copy, "cpu")
    with pytest.raises(ModelError, match=r"\Athe tokenizer of .* cannot read a text: .*\Z"):
        maskov.score(model, ["a" * 120 + "!"])
