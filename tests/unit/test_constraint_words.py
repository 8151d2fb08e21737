"""Words as tokens: with every kind of tokenizer, and on the command line."""

import pytest
import torch

import maskov
import tiny_models
from maskov import AvoidWords, ContainsWords, MaskedConditional, default_kernel
from maskov.constraints.base import continues, spellings
from maskov.exact import fresh_state


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


TEXTS = {
    "cat sat": {"cat": True, "at": False},
    "the cat": {"cat": True, "sat": False},
    "the cats sat": {"cat": False, "sat": True},
    "a dog": {"dog": True, "cat": False},
}


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("text", TEXTS)
def test_whole_words_are_found_in_texts(models, family, text):
    model = models[family]
    chains = fresh_state(torch.tensor([model.encode(text)]))
    for word, stands in TEXTS[text].items():
        if word == "at" and family == "bert":
            continue  # not in its vocabulary
        conditional = MaskedConditional(constraints=(ContainsWords((word,)),))
        assert conditional.possible(chains.sequences, model).tolist() == [stands]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_samples_of_every_tokenizer_hold_the_words(models, family):
    constraints = (ContainsWords(("cat", "dog")), AvoidWords(("the",)))
    run = maskov.sample(
        models[family], default_kernel(constraints=constraints), maskov.Schedule(epochs=2),
        chains=3, length=7, start="masked",
    )  # fmt: skip
    for sample in run.samples:
        assert {"cat", "dog"} <= set(
            "".join(s if s.isalnum() else " " for s in sample.text).split()
        )
        assert "the" not in sample.text.split()
