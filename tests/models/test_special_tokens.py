"""Special and unused tokens are never sampled, and the softmax still counts them."""

import pytest
import torch

import maskov
import tiny_models
from maskov.constraints.base import continues, spellings
from tiny_models import AMINO_ACIDS, WORDS

# By spelling, so that the list does not repeat the rule it checks.
NEVER = {
    "bert": "[PAD] [unused0] [unused1] [UNK] [CLS] [SEP] [MASK]",
    "distilbert": "[PAD] [unused0] [unused1] [UNK] [CLS] [SEP] [MASK]",
    "electra": "[PAD] [unused0] [unused1] [UNK] [CLS] [SEP] [MASK]",
    "roberta": "<s> <pad> </s> <unk> <mask> madeupword0000 madeupword0001",
    "xlm-roberta": "<s> <pad> </s> <unk> <mask> <extra_id_0>",
    "camembert": "<s> <pad> </s> <unk> <mask> <s>NOTUSED </s>NOTUSED <unk>NOTUSED",
    "albert": "<pad> <unk> [CLS] [SEP] [MASK] [unused0]",
    "modernbert": "|||IP_ADDRESS||| <|padding|> <|endoftext|> [UNK] [CLS] [SEP] [PAD] [MASK] "
    "[unused0] [unused1]",
    "esm": "<cls> <pad> <eos> <unk> <null_1> <mask>",
    "mpnet": "<s> <pad> </s> <unk> [UNK] <mask>",
}
# How each kind of tokenizer spells a word that follows a space.
SPACE = {"roberta": "Ġ", "modernbert": "Ġ", "xlm-roberta": "▁", "camembert": "▁", "albert": "▁"}


@pytest.fixture(scope="module", params=tiny_models.FAMILIES)
def model(request, tmp_path_factory):
    folder = tiny_models.build(request.param, tmp_path_factory.mktemp(request.param), torch.float64)
    loaded = maskov.HuggingFaceModel.load(str(folder), dtype=torch.float64)
    head = loaded.network.get_output_embeddings()
    bias = loaded.network.lm_head.bias if request.param == "esm" else head.bias
    # Left to itself, this model would put a forbidden token nearly everywhere.
    bias[loaded.forbidden] += 12.0
    return loaded


@pytest.fixture
def family(model):
    return model.network.config.model_type


def test_which_tokens_are_forbidden(model, family):
    words = AMINO_ACIDS if family == "esm" else [SPACE.get(family, "") + word for word in WORDS]
    for allowed, tokens in ((False, NEVER[family].split()), (True, words)):
        for token in tokens:
            index = model.tokenizer.get_vocab()[token]
            assert model.token_strings([index]) == [token]
            assert bool(model.forbidden[index]) != allowed, token
    # So are rows without a token, letters that are not amino acids, and nothing else.
    spare, named = tiny_models.SPARE_ROWS.get(family, 0), len(model.tokenizer)
    assert model.vocabulary_size == named + spare
    assert bool(model.forbidden[named:].all())
    others = "XBUZO.-" if family == "esm" else ""
    assert sorted(model.token_strings(sorted(model.only_given))) == sorted(others)
    assert int(model.forbidden.sum()) == len(NEVER[family].split()) + spare + len(others)


@pytest.mark.parametrize(
    ("model", "word", "tokens", "inner"),
    [
        ("bert", "cats", [["cat", "##s"]], ["##s", "##ed"]),
        ("roberta", "cat", [["c", "a", "t"], ["Ġcat"]], ["a", "b"]),
        ("xlm-roberta", "cat", [["▁cat"]], ["a", "b"]),
        ("esm", "MKT", [["M", "K", "T"]], []),
    ],
    indirect=["model"],
)
def test_words_of_constraints_are_spelled_in_tokens(model, word, tokens, inner):
    assert [model.token_strings(ids) for ids in spellings(model, word)] == tokens
    names = model.token_strings(range(model.vocabulary_size))
    continuing = [name for name, one in zip(names, continues(model), strict=True) if one]
    assert set(inner) <= set(continuing)
    assert (not inner) == (not continuing)


@pytest.mark.parametrize(
    ("kernel", "start"),
    [
        (maskov.Gibbs(), "greedy"),
        (maskov.Gibbs(maskov.Site(maskov.MaskedConditional(top_k=2, epsilon=0.5))), "masked"),
        (maskov.Metropolis(maskov.Norm()), "greedy"),
        (maskov.mask_predict(2), "masked"),
    ],
    ids=["gibbs", "truncated", "mh", "mask-predict"],
)
def test_samples_hold_no_forbidden_token(model, kernel, start):
    run = maskov.sample(
        model, kernel, maskov.Schedule(epochs=2), chains=3, length=(2, 4), start=start, thin=1
    )
    ids = torch.tensor([index for sample in run.samples for index in sample.ids])
    assert len(run.samples) == 6
    assert not bool(model.forbidden[ids].any())
