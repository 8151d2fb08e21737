"""A fingerprint tells two models apart if and only if their answers can differ."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import maskov
import tiny_models
from json_files import edited
from small import random_table, tiny_bert

TEXT = " the cat sat"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return tiny_models.build("modernbert", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def before(original):
    """The fingerprint and the energy of the model that is changed."""
    return _load(original).fingerprint(), _energy(original)


@pytest.fixture
def copy(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def _load(folder: Path):
    return maskov.load(str(folder), "cpu")


def _energy(folder: Path) -> float:
    return maskov.score(_load(folder), [TEXT])[0].energy


def _edit(folder: Path, change, name: str = "tokenizer.json") -> None:
    """Change the tokenizer of a folder as data."""
    with edited(folder / name) as data:
        change(data)


def _settings(**changes):
    return lambda folder: _edit(folder, lambda data: data.update(changes), "tokenizer_config.json")


def _one_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["decoder.bias"][3] += 1e-6
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _swapped_words(data) -> None:
    words = data["model"]["vocab"]
    words["Ġcat"], words["Ġdog"] = words["Ġdog"], words["Ġcat"]


def _without_frame(data) -> None:
    data["post_processor"]["single"] = [{"Sequence": {"id": "A", "type_id": 0}}]


def _special_word(data) -> None:
    """A word that is now forbidden."""
    index = data["model"]["vocab"]["Ġcat"]
    token = dict(data["added_tokens"][0], id=index, content="Ġcat", special=True)
    data["added_tokens"].append(token)


CHANGES = {
    "weight": _one_weight,
    "activation": lambda folder: tiny_models.edit_config(folder, hidden_activation="relu"),
    "heads": lambda folder: tiny_models.edit_config(folder, num_attention_heads=4),
    "words": lambda folder: _edit(folder, _swapped_words),
    "frame": lambda folder: _edit(folder, _without_frame),
    "end": lambda folder: _edit(folder, lambda data: data["post_processor"]["single"].pop()),
    "mask": _settings(mask_token="[unused0]"),
    "padding": _settings(pad_token="[unused1]"),
    "forbidden": lambda folder: _edit(folder, _special_word),
    "normaliser": lambda folder: _edit(folder, lambda x: x.update(normalizer={"type": "NFC"})),
    "merges": lambda folder: _edit(folder, lambda data: data["model"]["merges"].pop()),
}
# Of these the energy of a text shows that it is another model.
SEEN = ("activation", "heads", "words", "frame", "end", "mask")


@pytest.mark.parametrize("name", CHANGES)
def test_each_part_matters(name, before, copy):
    CHANGES[name](copy)
    assert _load(copy).fingerprint() != before[0]
    if name in SEEN:
        assert abs(_energy(copy) - before[1]) > 1e-3


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "esm"])
def test_neither_use_nor_the_place_of_a_folder_changes_it(family, tmp_path):
    folder = tiny_models.build(family, tmp_path / "one")
    model = _load(folder)
    before = model.fingerprint()
    model.tokenizer(["a cat", "the"], padding=True, truncation=True, max_length=4)
    maskov.score(model, tiny_models.texts_for(family)[:1])
    other = shutil.copytree(folder, tmp_path / "other")
    assert model.fingerprint() == before == _load(other).fingerprint()


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
