"""Words as tokens: with every kind of tokenizer, and on the command line."""

import pytest

import maskov
import tiny_models
from maskov.constraints.base import continues, spellings


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    names = ("bert", "roberta", "xlm-roberta", "esm")
    return {name: maskov.load(str(tiny_models.build(name, folder / name))) for name in names}


@pytest.mark.parametrize(
    ("family", "word", "tokens", "inner"),
    [
        ("bert", "cats", [["cat", "##s"]], ["##s", "##ed"]),
        ("roberta", "cat", [["c", "a", "t"], ["Ġcat"]], ["a", "b"]),
        ("xlm-roberta", "cat", [["▁cat"]], ["a", "b"]),
        ("esm", "MKT", [["M", "K", "T"]], []),
    ],
)
def test_spellings(models, family, word, tokens, inner):
    model = models[family]
    assert [model.token_strings(ids) for ids in spellings(model, word)] == tokens
    names = model.token_strings(range(model.vocabulary_size))
    continuing = [name for name, one in zip(names, continues(model), strict=True) if one]
    assert set(inner) <= set(continuing)
    assert (not inner) == (not continuing)
