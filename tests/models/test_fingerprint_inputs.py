"""What turns texts into a model's inputs is part of its fingerprint, each thing by itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import maskov
import tiny_models
import tiny_translation
from maskov import Metropolis, RunError, Schedule
from maskov.config import ModelSource
from maskov.errors import Interrupted
from small import random_table, tiny_bert


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return tiny_models.build("modernbert", tmp_path_factory.mktemp("model"))


@pytest.fixture
def copy(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def _load(folder: Path):
    return maskov.load(str(folder), "cpu")


def _edit(folder: Path, change) -> None:
    """Change the tokenizer of a folder as data."""
    file = folder / "tokenizer.json"
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def _edit_settings(folder: Path, **changes) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _without_frame(folder: Path) -> None:
    def change(data):
        data["post_processor"]["single"] = [{"Sequence": {"id": "A", "type_id": 0}}]

    _edit(folder, change)


def _without_end(folder: Path) -> None:
    _edit(folder, lambda data: data["post_processor"]["single"].pop())


def _other_mask(folder: Path) -> None:
    _edit_settings(folder, mask_token="[unused0]")


def _other_padding(folder: Path) -> None:
    _edit_settings(folder, pad_token="[unused1]")


def _special_word(folder: Path) -> None:
    """A word that is now forbidden."""

    def change(data):
        index = data["model"]["vocab"]["Ġcat"]
        token = dict(data["added_tokens"][0], id=index, content="Ġcat", special=True)
        data["added_tokens"].append(token)

    _edit(folder, change)


def _other_normaliser(folder: Path) -> None:
    _edit(folder, lambda data: data.update(normalizer={"type": "Lowercase"}))


def _other_merges(folder: Path) -> None:
    _edit(folder, lambda data: data["model"]["merges"].pop())


CHANGES = [_without_frame, _without_end, _other_mask, _other_padding, _special_word,
           _other_normaliser, _other_merges]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__.strip("_"))
def test_each_part_of_the_tokenizer_matters(change, original, copy):
    change(copy)
    assert _load(copy).fingerprint() != _load(original).fingerprint()


def test_the_frame_decides_the_energy(original, copy):
    """Which is why it belongs to the fingerprint."""
    _without_frame(copy)
    energies = [
        maskov.score(_load(folder), [" the cat sat"])[0].energy for folder in (original, copy)
    ]
    assert abs(energies[0] - energies[1]) > 1e-3


@pytest.mark.parametrize("change", [_without_frame, _special_word, _other_mask],
                         ids=["frame", "forbidden", "mask"])  # fmt: skip
def test_a_run_does_not_go_on_with_another_target(change, copy, tmp_path):
    left = iter(range(10**9))
    with pytest.raises(Interrupted):
        maskov.sample(
            _load(copy), Metropolis(maskov.Raw()), Schedule(epochs=5), chains=2, length=4,
            out=tmp_path / "run", source=ModelSource(str(copy)), stop=lambda: next(left) > 20,
        )  # fmt: skip
    change(copy)
    with pytest.raises(RunError, match="not the one this run began with"):
        maskov.resume(tmp_path / "run")


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "esm"])
def test_the_same_folder_has_the_same_fingerprint_before_and_after_use(family, tmp_path):
    folder = tiny_models.build(family, tmp_path)
    model = _load(folder)
    before = model.fingerprint()
    model.tokenizer(["a cat", "the"], padding=True, truncation=True, max_length=4)
    maskov.score(model, tiny_models.texts_for(family)[:1])
    assert model.fingerprint() == before == _load(folder).fingerprint()


def test_a_tokenizer_in_python_is_hashed_by_its_files_and_special_tokens(tmp_path):
    first, second = (tiny_models.build("esm", tmp_path / name) for name in "ab")
    assert _load(first).fingerprint() == _load(second).fingerprint()
    vocabulary = (second / "vocab.txt").read_text()
    (second / "vocab.txt").write_text(vocabulary.replace("<null_1>", "J"))
    assert _load(first).fingerprint() != _load(second).fingerprint()


def test_tokens_forbidden_by_hand_matter():
    assert random_table().fingerprint() == random_table().fingerprint()
    assert random_table().fingerprint() != random_table(forbidden="a").fingerprint()
    model, other = tiny_bert(), tiny_bert()
    assert model.fingerprint() == other.fingerprint()
    other.forbidden[-1] = True
    assert model.fingerprint() != other.fingerprint()


def test_merges_of_a_translation_model_matter(tmp_path):
    models = []
    for name in ("one", "two"):
        folder = tmp_path / name
        tiny_translation.save(folder)
        (folder / "bpe_merges.txt").write_text(f"#version: 0.2\nr e\n{name[0]} {name[1]}\n")
        models.append(maskov.load(folder, "cpu"))
    assert models[0].fingerprint() != models[1].fingerprint()
    assert models[0].fingerprint() == maskov.load(tmp_path / "one", "cpu").fingerprint()
    assert models[0].dtype == torch.float32
